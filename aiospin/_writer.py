"""QueueWriter: the single writer's end of a queue.

The calls that send are the backend's (`acquire_write`, `try_acquire_write`, `put`, `put_nowait`, `put_many`,
`put_many_nowait`, `aput`, `aput_many`, `fileno`, `arm`); here is how the role is claimed, and what the writer decides
about readers.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from aiospin import _backend, _layout, _roles, _statistics
from aiospin._endpoint import Endpoint
from aiospin._reader import rank_of
from aiospin._tenancy import Tenancy

T = TypeVar("T")


class QueueWriter(Endpoint, _backend.core.Writer, Generic[T]):
    """Publishes messages to every reader.

    Made by `Queue.writer()` or `aiospin.attach(text)`; one living process has the role (RoleTaken). Claimed at first
    use or by `with writer:`, whose end closes the stream. When its process dies, a writer made elsewhere takes over
    where the last published message ended.

    A call waits while some reader has not released the room it needs; `timeout` in seconds, None for ever, 0 to look
    once. It raises the built-in TimeoutError, QueueClosed after a shutdown, and PeerDied(rank, pid) once for each
    gating reader that died: the rank keeps its place for a successor until `drop_reader(rank)`. Tasks of one loop that
    wait are served first in, first out. A cancelled or timed-out call has published nothing, with one exception:
    `put_many` and `aput_many` publish in order and may have published the first few.

    One claim (`acquire_write`) at a time. With `threadsafe=True` threads wait for each other instead of WriterBusy.
    """

    def _open_role(self, bells: dict[int, int], tenancy: Tenancy) -> None:
        segment = self._segment
        # A successor reopens a stream that its predecessor ended.
        closed = _layout.control_offset(segment.readers) + _layout.CONTROL_WRITER_CLOSED
        segment.mapping.store(closed, 0)
        self._open(
            segment.mapping,
            bells[_layout.WRITER],
            [bells[_layout.reader_role(rank)] for rank in range(segment.readers)],
            self._horizon,
            self._coder.encode,
            segment.checksum,
            self._options.threadsafe,
            tenancy,
        )

    def _peer_roles(self) -> tuple[int, ...]:
        return tuple(_layout.reader_role(rank) for rank in range(self._segment.readers))

    def _concerns(self, role: int) -> bool:
        return self._gates(role - 1)

    def _gates(self, rank: int) -> bool:
        load, readers = self._segment.mapping.load, self._segment.readers
        stay = load(_layout.reader_offset(readers, rank) + _layout.READER_STAY)
        return stay % 2 == 0 and bool(stay == load(_layout.gate_offset(readers, rank) + _layout.GATE_GATE))

    def _announce_arrival(self) -> None:
        self._ring_all()

    def _may_attempt(self) -> bool:
        return not self._claimed

    @property
    def position(self) -> int:
        """Where the message that was published last ends: bytes, slot headers included, since the queue was made."""
        return _statistics.published_in(self._segment)

    def taken(self, rank: int) -> int:
        """The position up to which readers of a rank have taken messages, whether they gave them back or not.

        A message whose end lies beyond it was seen by none of them, alive or dead.
        """
        return _statistics.acquired_by(self._segment, rank_of(rank, self._segment.readers))

    def drop_reader(self, rank: int, *, force: bool = False) -> None:
        """Stop waiting for a reader that is gone: its rank no longer gates, and whoever claims it later starts at what
        is published then.

        ValueError for a rank that lives, unless `force`: its next use then raises ReaderDropped, and slots that it
        still holds may be overwritten.
        """
        rank = rank_of(rank, self._segment.readers)
        self._claim()
        pid = _roles.holder(self._segment, _layout.reader_role(rank))
        if pid is not None and not force:
            raise ValueError(f"reader {rank} is alive (pid {pid}); force=True drops it all the same")
        self._drop(rank)
        self._line.kick()
