"""Queue: creates a segment, owns it, and hands out its ends. `attach` turns a handle's text into the end it names."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import sys
import time
import warnings
import weakref
from collections.abc import AsyncIterator, Iterator
from types import TracebackType
from typing import Any, Generic, TypeVar

from aiospin import _backing, _codec, _layout, _preflight, _roles
from aiospin._deadline import Deadline
from aiospin._endpoint import Endpoint, Options
from aiospin._errors import ForkedUse, QueueClosed, UnsupportedPlatform
from aiospin._finalizers import quiet_at_exit
from aiospin._handle import Handle
from aiospin._policy import WaitPolicy, resolve
from aiospin._reader import QueueReader, rank_of
from aiospin._segment import Segment
from aiospin._statistics import Statistics, survey
from aiospin._writer import QueueWriter

T = TypeVar("T")

_READY_POLL = 0.005  # seconds between two looks at who has attached: start-up, not the hot path


class Queue(Generic[T]):
    """A lossless single-writer, many-reader ring of messages in shared memory.

    readers        how many ranks read every message; 0 is legal, and then nothing is kept
    capacity       bytes of the ring, or text such as "16 MiB"; larger messages pass through it in pieces
    name           makes a named segment, found and outlived by others, under `directory`, AIOSPIN_DIR or /dev/shm;
                   without either the memory is anonymous and goes with the last process that has it
    codec          what put() and get() take: "bytes", "msgpack" (the extra `msgpack`), or "pickle"
    checksum       CRC-32C on every slot; a mismatch raises CorruptSlot
    policy         a WaitPolicy, the name of a preset, or None for AIOSPIN_POLICY, else "balanced"
    on_peer_death  "raise" PeerDied where an end waits, or "wait" for a successor
    stall_after    seconds after which a wait logs one line that tells its story

    Raises TypeError and ValueError for arguments, SegmentTooLarge for what can never fit, FileExistsError for a name
    that is taken, UnsupportedPlatform elsewhere than on 64-bit Linux. Memory is reserved and touched here, so that no
    later write can fault.

    The object owns the segment's descriptors: text handles work while it lives and is open. `close()` (or the end of
    `with`) shuts the queue down for everybody: readers drain it, then get QueueClosed.
    """

    def __init__(
        self,
        *,
        readers: int = 1,
        capacity: int | str = "4 MiB",
        name: str | None = None,
        directory: str | os.PathLike[str] | None = None,
        codec: str = "bytes",
        checksum: bool = False,
        policy: WaitPolicy | str | None = None,
        on_peer_death: str = "raise",
        stall_after: float = 10.0,
    ) -> None:
        self._segment: Segment | None = None
        if sys.platform != "linux" or sys.maxsize < 2**32 or sys.byteorder != "little":
            raise UnsupportedPlatform(f"aiospin needs 64-bit little-endian Linux, and this is {sys.platform}")
        self._options = Options(codec, resolve(policy), on_peer_death, stall_after)
        _codec.find(codec)
        rounded = _preflight.check_capacity(capacity, readers, _backing.parent_of(name, directory))
        self._generation = _roles.fork_generation()
        self._segment = Segment.create(
            readers=readers, capacity=rounded, checksum=bool(checksum), name=name, directory=directory
        )
        self._ends: weakref.WeakSet[Endpoint] = weakref.WeakSet()
        self._only_reader: QueueReader[T] | None = None

    # ends

    def reader(
        self,
        rank: int = 0,
        *,
        policy: WaitPolicy | str | None = None,
        on_peer_death: str | None = None,
        stall_after: float | None = None,
    ) -> QueueReader[T]:
        """The end of that rank, unclaimed. What is not given is as for the queue."""
        segment = self._open()
        role = _layout.reader_role(rank_of(rank, segment.readers))
        options = self._options_with(policy, on_peer_death, stall_after)
        reader: QueueReader[T] = QueueReader(segment, role, options)
        self._ends.add(reader)
        return reader

    def writer(
        self,
        *,
        threadsafe: bool = False,
        policy: WaitPolicy | str | None = None,
        on_peer_death: str | None = None,
        stall_after: float | None = None,
    ) -> QueueWriter[T]:
        """The writer's end, unclaimed. `threadsafe`: threads of one process may share it. The rest as for `reader`."""
        options = dataclasses.replace(self._options_with(policy, on_peer_death, stall_after), threadsafe=threadsafe)
        writer: QueueWriter[T] = QueueWriter(self._open(), _layout.WRITER, options)
        self._ends.add(writer)
        return writer

    def _options_with(
        self, policy: WaitPolicy | str | None, on_peer_death: str | None, stall_after: float | None
    ) -> Options:
        changes: dict[str, Any] = {
            "policy": None if policy is None else resolve(policy),
            "on_peer_death": on_peer_death,
            "stall_after": stall_after,
        }
        return dataclasses.replace(
            self._options, **{name: value for name, value in changes.items() if value is not None}
        )

    # what it is

    @property
    def readers(self) -> int:
        """How many ranks it has."""
        return self._open().readers

    @property
    def capacity(self) -> int:
        """Bytes of the ring."""
        return self._open().capacity

    def statistics(self) -> Statistics:
        """A frozen snapshot: cursors, lag per rank, and the counters of the ends that were made here and are open."""
        return survey(self._open(), list(self._ends))

    def __repr__(self) -> str:
        return "<Queue, closed>" if self._segment is None else f"<Queue {self._segment!r}>"

    # start

    async def ready(self, timeout: float | None = None) -> None:
        """Wait until every rank has been attached once. TimeoutError names those that have not."""
        deadline = Deadline(timeout)
        while missing := self._missing():
            deadline.check(_unattached(missing))
            await asyncio.sleep(_READY_POLL)

    def wait_ready(self, timeout: float | None = None) -> None:
        """`ready()` for threads without an event loop."""
        deadline = Deadline(timeout)
        while missing := self._missing():
            deadline.check(_unattached(missing))
            time.sleep(_READY_POLL)

    def _missing(self) -> list[int]:
        segment = self._open()
        seats = (_roles.seat(segment, _layout.reader_role(rank)) for rank in range(segment.readers))
        return [rank for rank, seat in enumerate(seats) if seat.tenure == 0]

    # end

    def shutdown(self, *, immediate: bool = False) -> None:
        """End the queue for everybody: puts raise QueueClosed at once; gets drain first, unless `immediate`."""
        segment = self._open()
        if self._generation != _roles.fork_generation():
            raise ForkedUse("the queue belongs to the parent of this process, which alone can shut it down")
        word = _layout.control_offset(segment.readers) + _layout.CONTROL_SHUTDOWN
        # sync:shutdown seq_cst: ends look at it before they take, and again before they sleep; then the bells.
        segment.mapping.store(word, 2 if immediate else max(1, segment.mapping.load(word)))
        for role in range(segment.readers + 1):
            segment.ring(role)
        for end in list(self._ends):
            end._line.kick()

    def close(self) -> None:
        """`shutdown()`, and let go of the segment. Ends that were handed out can still be drained. Idempotent.

        In a forked child it only lets go: the queue is the parent's.
        """
        if self._segment is None:
            return
        if self._generation == _roles.fork_generation():
            self.shutdown()
        self._let_go()

    async def aclose(self) -> None:
        """`close()`, for `contextlib.aclosing` and the like."""
        self.close()

    def _let_go(self) -> None:
        segment, self._segment = self._segment, None
        if self._only_reader is not None:
            self._only_reader.close()
        if segment is not None:
            segment.drop()

    def _open(self) -> Segment:
        if self._segment is None:
            raise QueueClosed("the queue is closed")
        return self._segment

    def __enter__(self) -> Queue[T]:
        self._open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Queue[T]:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @quiet_at_exit
    def __del__(self) -> None:
        if getattr(self, "_segment", None) is None:
            return
        try:
            warnings.warn(f"{self!r} was never closed", ResourceWarning, source=self, stacklevel=2)
        finally:  # where warnings are errors too
            self._let_go()

    # with one reader, the queue reads for itself

    def _solo(self) -> QueueReader[T]:
        if self._only_reader is None:
            readers = self.readers
            if readers != 1:
                raise TypeError(f"this queue has {readers} readers; say which: queue.reader(rank)")
            self._only_reader = self.reader(0)
        return self._only_reader

    def __getattr__(self, name: str) -> Any:
        if name in _READS:
            return getattr(self._solo(), name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __iter__(self) -> Iterator[T]:
        return iter(self._solo())

    def __aiter__(self) -> AsyncIterator[T]:
        return self._solo().__aiter__()


_READS = frozenset("acquire_read try_acquire_read get get_nowait get_many aget aget_many slots fileno arm".split())


def _unattached(ranks: list[int]) -> str:
    return f"reader {', '.join(map(str, ranks))} was not attached"


def attach(handle: Handle | str, **options: Any) -> QueueReader[Any] | QueueWriter[Any]:
    """The end that a handle names, unclaimed, in any process of the same user on the same machine.

    `handle` is a Handle or its text; `options` are `policy`, `on_peer_death`, `stall_after` and, for a writer,
    `threadsafe`. Raises AttachError that says which condition failed: a handle that is damaged, an owner that is gone,
    another boot, PID namespace or user, a segment that is not what the handle says (LayoutMismatch: another version).
    """
    if isinstance(handle, str):
        handle = Handle.parse(handle)
    elif isinstance(handle, Handle):
        handle = handle._checked()
    else:
        raise TypeError(f"a handle is text or a Handle, got {handle!r}")
    settings = Options(codec=handle.codec, **options)
    segment = Segment.adopt(handle.segment)
    try:
        if handle.role == _layout.WRITER:
            return QueueWriter(segment, handle.role, settings)
        return QueueReader(segment, handle.role, settings)
    finally:
        segment.drop()
