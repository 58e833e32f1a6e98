"""ReadSlot: a lease on one message's bytes.

Guarantee: the bytes stay put until the slot has been left and the last view of them has died; an untouched slot goes
back to its reader and is handed out next.
Assumption: views are found by the life of the lease array under them, not by counting exports (NumPy keeps none).
"""

from __future__ import annotations

import warnings
import weakref
from types import TracebackType
from typing import TYPE_CHECKING, Any

from aiospin._fallback.record import Record
from aiospin._fallback.ring import HEADER_BYTES
from aiospin._finalizers import quiet_at_exit

if TYPE_CHECKING:
    from aiospin._fallback.reader_core import ReaderCore


class ReadSlot:
    """One message. Made by a reader only; usable from any thread, by one at a time.

    `sequence` counts messages from 0; `size` and `len()` are bytes; `redelivered` says that an earlier holder of this
    rank took it too and did not release it. None of these touches the slot; `data` and `memoryview()` do.
    """

    __slots__ = {
        "__weakref__": None,
        "_core": None,
        "_lease": None,
        "_left": None,
        "_record": None,
        "redelivered": "Whether an earlier holder of this rank took it too, and did not release it.",
        "sequence": "The message's number in its queue, from 0, without gaps.",
        "size": "Bytes of the message.",
    }

    def __init__(self, core: ReaderCore, record: Record) -> None:
        self._core = core
        self._record = record
        self._lease: Any = None
        self.sequence: int = record.sequence
        self.size: int = record.size
        self.redelivered: bool = record.redelivered
        self._left = False
        record.out = True

    @property
    def data(self) -> memoryview:
        """A new read-only view of the payload. It, and everything made from it, keeps the bytes leased."""
        if self._left:
            raise ValueError(f"the slot of message {self.sequence} was released")
        if self._lease is None:
            self._lease = self._core.payload(self._record)
        return memoryview(self._lease).cast("B")[: self.size].toreadonly()

    def __buffer__(self, flags: int, /) -> memoryview:
        return self.data

    def __release_buffer__(self, view: memoryview, /) -> None:
        # Nothing to do, but it must exist: only then does NumPy keep the view, rather than just the slot.
        pass

    def __len__(self) -> int:
        return self.size

    @property
    def released(self) -> bool:
        """The slot has been left. Its bytes may still be leased by views."""
        return self._left

    def release(self) -> None:
        """Give the bytes back. Again is fine. BufferError, and still leased, while views of them are alive."""
        if self._left:
            return
        if self._lease is not None:
            alive = self._views()
            if alive is not None:
                self._lease = alive
                raise BufferError(f"the slot of message {self.sequence} still has views: delete them first")
            self._left = True
        else:
            self._left = True
            self._core.give(self._record)

    def keep(self) -> memoryview:
        """The bytes as writable memory of the caller's own; the slot goes back. ValueError once it was released,
        BufferError while views of it are alive.

        A message that came in pieces is handed over as it was put together; any other is copied.
        """
        if self._left:
            raise ValueError(f"the slot of message {self.sequence} was released")
        kept = self._record.private
        if kept is None:
            kept = self._core.copy_writable(self._record)
        self.release()
        return memoryview(kept)

    @property
    def _position(self) -> int | None:
        """Where its payload begins in the stream of bytes; None if it is not in the ring."""
        record = self._record
        return record.start + HEADER_BYTES if record.private is None else None

    def _views(self) -> Any:
        """Let go of the lease. Returns it if views keep it alive; else it has given the record back by now."""
        probe = weakref.ref(self._lease)
        self._lease = None
        return probe()

    def _leave(self) -> None:
        """As `release`, except that views may live on and take the lease with them."""
        if self._left:
            return
        if self._lease is None:
            self.release()
            return
        self._left = True
        # Counted before the lease is let go: if no view keeps it, it uncounts itself on the way back.
        self._record.left = True
        self._core.views += 1
        self._lease = None

    def __enter__(self) -> ReadSlot:
        if self._left:
            raise ValueError(f"the slot of message {self.sequence} was released")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave()

    async def _exit_async(self, failed: bool) -> None:
        self._leave()

    def _exit_sync(self, failed: bool) -> None:
        self._leave()

    @quiet_at_exit
    def __del__(self) -> None:
        if getattr(self, "_left", True):
            return
        if self._lease is None:
            self._left = self._record.back = True
            self._core.give(self._record)
            return
        live = self._core.live
        alive = self._views()
        if alive is not None:  # its views keep the bytes, and nothing is wrong
            self._lease = alive
            del alive
            self._leave()
            return
        self._left = True
        if live:
            warnings.warn(f"{self!r} was never released", ResourceWarning, source=self, stacklevel=2)

    def __repr__(self) -> str:
        state = " released" if self._left else ""
        return f"<ReadSlot {self.sequence}: {self.size} bytes{' redelivered' if self.redelivered else ''}{state}>"
