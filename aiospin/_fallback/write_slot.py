"""WriteSlot: the writer's claim on the next slot, written in place.

Guarantee: nothing of it is visible before publish(); an abort leaves no trace. A claim ends once, however it ends.
Assumption: nobody writes through an old view of `data` after the claim has ended.
"""

from __future__ import annotations

import warnings
from types import TracebackType
from typing import TYPE_CHECKING

from aiospin._errors import QueueClosed
from aiospin._fallback.batch import Batch
from aiospin._fallback.timing import check_count
from aiospin._finalizers import quiet_at_exit

if TYPE_CHECKING:
    from aiospin._fallback.writer import Writer
    from aiospin._fallback.writer_core import WriterCore


class WriteSlot:
    """One claimed message of `size` bytes. `with` publishes it; an exception in the body aborts it.

    A message larger than the ring is built in private memory, and passes through the ring in fragments when published.
    """

    __slots__ = {
        "__weakref__": None,
        "_core": None,
        "_data": None,
        "_open": None,
        "_private": None,
        "_writer": None,
        "size": "Bytes that will be published.",
    }

    def __init__(self, writer: Writer, core: WriterCore, size: int) -> None:
        self._open = False
        self._writer = writer
        self._core = core
        self._private = bytearray(size) if size > core.largest else None
        self._data = core.payload_view(size) if self._private is None else memoryview(self._private)
        self.size = size
        self._open = True

    @property
    def data(self) -> memoryview:
        """A writable view of the payload; its bytes are whatever was there before."""
        self._check()
        return self._data

    def __buffer__(self, flags: int, /) -> memoryview:
        return self.data

    def __release_buffer__(self, view: memoryview, /) -> None:
        # Nothing to do, but it must exist: only then does NumPy keep the view, rather than just the slot.
        pass

    def __len__(self) -> int:
        return self.size

    def _check(self) -> None:
        if not self._open:
            raise ValueError("the write claim has ended: it was published or aborted")

    def truncate(self, nbytes: int) -> None:
        """Publish only the first `nbytes` bytes. Views taken before keep their length."""
        self._check()
        nbytes = check_count("nbytes", nbytes, 0)
        if nbytes > self.size:
            raise ValueError(f"a slot of {self.size} bytes cannot be truncated to {nbytes}")
        self._data = self._data[:nbytes]
        self.size = nbytes

    def publish(self) -> None:
        """Make the message visible. Waits, for ever if need be, only when it is larger than the ring.

        QueueClosed if the queue was shut down meanwhile; the claim has ended then too. ValueError if it had before.
        """
        batch = self._begin_publish()
        if batch is not None:
            try:
                self._writer._push_claimed(batch)
            finally:
                self._end()

    def abort(self) -> None:
        """Drop the claim: nothing is published. Again, or after publish(), does nothing."""
        if self._open:
            self._end()

    def _begin_publish(self) -> Batch | None:
        """Publish in place and end, or return what is to be pushed through the ring before the end."""
        self._check()
        published = False
        try:
            if not self._core.live or self._core.shutdown():
                raise self._writer._over() or QueueClosed("the queue was shut down; the claimed slot was not published")
            if self._private is None:
                self._core.publish_claim(self.size)
                return None
            published = True
            return Batch([(self._data,)])
        finally:
            if not published:
                self._end()

    def _end(self) -> None:
        self._open = False
        self._data = memoryview(b"")
        self._writer._end_claim(self._core)

    def __enter__(self) -> WriteSlot:
        self._check()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._exit_sync(kind is not None)

    def _exit_sync(self, failed: bool) -> None:
        if failed:
            self.abort()
        elif self._open:
            self.publish()

    async def _exit_async(self, failed: bool) -> None:
        if failed:
            self.abort()
        elif self._open:
            batch = self._begin_publish()
            if batch is not None:
                self._end()
                await self._writer._push_async(batch)

    @quiet_at_exit
    def __del__(self) -> None:
        if getattr(self, "_open", False):
            live = self._core.live
            self._end()
            if live:
                warnings.warn(
                    "a write claim was never published or aborted", ResourceWarning, source=self, stacklevel=2
                )

    def __repr__(self) -> str:
        return f"<WriteSlot: {self.size} bytes{'' if self._open else ' ended'}>"
