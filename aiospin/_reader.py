"""QueueReader: one rank's end of a queue.

The calls that take messages are the backend's (`acquire_read`, `try_acquire_read`, `get`, `get_nowait`, `get_many`,
`aget`, `aget_many`, `fileno`, `arm`); here is how the rank is claimed, and iteration.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any, Generic, TypeVar

from aiospin import _backend, _layout
from aiospin._endpoint import Endpoint
from aiospin._errors import QueueClosed
from aiospin._tenancy import Tenancy

T = TypeVar("T")


class QueueReader(Endpoint, _backend.core.Reader, Generic[T]):
    """Reads every message of the queue, in order, exactly once.

    Made by `Queue.reader(rank)` or `aiospin.attach(text)`. The role is claimed at first use, or by `with reader:`;
    until then the object pickles, so it can be an argument of a process. One thread and one task at a time may use it
    (ReaderBusy); it may move between threads and event loops.

    Waiting calls take `timeout` in seconds: None for ever, 0 to look once; they raise the built-in TimeoutError,
    QueueClosed once the stream has ended and is drained, PeerDied once when the writer dies, ReaderDropped when the
    writer dropped this rank. A cancelled or timed-out wait has taken nothing: the message is there for the next call.

    Payload bytes of a held slot are never overwritten. Slots may be held, several at a time, and released in any order;
    the writer waits for room behind the oldest.
    """

    def _open_role(self, bells: dict[int, int], tenancy: Tenancy) -> None:
        segment, rank = self._segment, self._role_number - 1
        self._open(
            segment.mapping,
            rank,
            bells[self._role_number],
            bells[_layout.WRITER],
            self._horizon,
            self._coder.decode,
            segment.checksum,
            tenancy,
        )

    def _peer_roles(self) -> tuple[int, ...]:
        return (_layout.WRITER,)

    def _concerns(self, role: int) -> bool:
        return True

    def _announce_arrival(self) -> None:
        # A writer that sleeps looks again at who is there.
        self._segment.ring(_layout.WRITER)

    # iteration

    def __iter__(self) -> Iterator[T]:
        """Owned messages until the stream ends. Blocks; in an event loop use `async for`."""
        while True:
            try:
                message = self.get()
            except QueueClosed:
                return
            yield message

    async def __aiter__(self) -> AsyncIterator[T]:
        """Owned messages until the stream ends."""
        while True:
            try:
                message = await self.aget()
            except QueueClosed:
                return
            yield message

    async def slots(self) -> AsyncIterator[_backend.core.ReadSlot]:
        """Leases until the stream ends, each valid until the next step or for as long as a view of it lives."""
        while True:
            acquire = self.acquire_read()
            try:
                slot = await acquire
            except QueueClosed:
                return
            with slot:
                yield slot


def rank_of(rank: Any, readers: int) -> int:
    """The rank itself if the queue has it. TypeError or ValueError naming it otherwise."""
    if isinstance(rank, bool) or not isinstance(rank, int):
        raise TypeError(f"rank must be a whole number, got {rank!r}")
    if not 0 <= rank < readers:
        legal = f"from 0 to {readers - 1}" if readers else "absent: the queue has no readers"
        raise ValueError(f"rank must be {legal}, got {rank}")
    return rank
