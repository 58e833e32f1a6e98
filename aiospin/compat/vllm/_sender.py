"""The writer's half of a MessageQueue.

Guarantee: a call that raised has sent nothing; the dead are heard of by a writer that never has to wait, too.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Generator
from pickle import dumps
from typing import Any, Final

from aiospin import _layout
from aiospin._errors import Full, PeerDied, QueueClosed
from aiospin._writer import QueueWriter
from aiospin.compat.vllm._ranks import Ranks
from aiospin.compat.vllm._wire import PLAIN, encode

_now = time.monotonic
_LOOK_AFTER: Final = 0.05  # seconds between two looks at who has died


class Sender:
    """Sends objects through a claimed end."""

    def __init__(self, writer: QueueWriter[bytes], ranks: list[int]) -> None:
        self.end = writer
        self.ranks = Ranks(writer, ranks)
        self._largest = writer._segment.capacity - _layout.SLOT_HEADER_BYTES  # that goes in one piece
        self._put_now = writer.put_nowait
        self._look_at = 0.0

    def send(self, obj: object, timeout: float | None) -> None:
        """Send one object, waiting for room that long."""
        if timeout is not None:
            timeout = clamped(timeout)
        try:
            if _now() >= self._look_at:
                self._look()
            parts = (dumps(obj, 5),) if type(obj) in PLAIN else encode(obj, self.end)
            try:
                return self._put_now(*parts)
            except (Full, ValueError) as refusal:  # no room, or not in one piece
                del refusal  # what is raised below has a reason of its own
            self.ranks.refuse_to_wait_for_the_dead()
            self.end.put(*parts, timeout=timeout)
        except (PeerDied, QueueClosed) as error:
            if not self.ranks.is_over(error):
                self.ranks.raise_for(error)
            self.send(obj, timeout)

    async def asend(self, obj: object, timeout: float | None) -> None:
        """`send` for coroutines. Awaits even what needs no wait, so that the loop gets its turns."""
        if timeout is not None:
            timeout = clamped(timeout)
        try:
            if _now() >= self._look_at:
                self._look()
            parts = encode(obj, self.end)
            if self.ranks.dead:
                with contextlib.suppress(Full, ValueError):
                    return self._put_now(*parts)
                self.ranks.refuse_to_wait_for_the_dead()
            await self.end.aput(*parts, timeout=timeout)
        except (PeerDied, QueueClosed) as error:
            if not self.ranks.is_over(error):
                self.ranks.raise_for(error)
            await self.asend(obj, timeout)

    def _look(self) -> None:
        """See who has died. Who never has to wait would not hear of it."""
        self._look_at = _now() + _LOOK_AFTER
        self.ranks.look_for_deaths()

    @contextlib.contextmanager
    def claim(self, nbytes: int, timeout: float | None) -> Generator[memoryview]:
        """Room for a message, sent at the end of the `with` unless that raises. ValueError if the ring is too small."""
        if nbytes > self._largest:
            raise ValueError(f"max_chunk_bytes must be at most {self._largest} to be written in place, got {nbytes}")
        slot = self._claim(nbytes, None if timeout is None else clamped(timeout))
        try:
            with lent(slot.data) as view:
                yield view
        except BaseException as error:
            slot.__exit__(type(error), error, None)
            raise
        try:
            slot.__exit__(None, None, None)
        except QueueClosed as error:
            self.ranks.raise_for(error)

    def _claim(self, nbytes: int, timeout: float | None) -> Any:
        try:
            if _now() >= self._look_at:
                self._look()
            slot = self.end.try_acquire_write(nbytes)
            if slot is None:
                self.ranks.refuse_to_wait_for_the_dead()
                slot = self.end.acquire_write(nbytes, timeout=timeout).__enter__()
            return slot
        except (PeerDied, QueueClosed) as error:
            if not self.ranks.is_over(error):
                self.ranks.raise_for(error)
            return self._claim(nbytes, timeout)


def clamped(timeout: float) -> float:
    """Time-outs below 0 are what is left of one that is over. TypeError and ValueError name what is none."""
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)):
        raise TypeError(f"timeout must be a number of seconds or None, got {timeout!r}")
    if timeout != timeout:
        raise ValueError(f"timeout must be a number of seconds or None, got {timeout!r}")
    return max(0.0, timeout)


@contextlib.contextmanager
def lent(view: memoryview) -> Generator[memoryview]:
    """A view for the length of a `with`. What was made of it may live on, and hides no error of the body."""
    try:
        yield view
    finally:
        with contextlib.suppress(BufferError):
            view.release()
