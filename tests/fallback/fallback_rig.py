"""A queue without the layer above it: a segment in a memfd, bells, and endpoints whose hooks are just enough.

Guarantee: the hooks keep what the real ones promise (a future per suspension, first in first out on the writer).
Assumption: no role locks; a test that puts two holders on one role means to.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any

from aiospin import _layout
from aiospin._errors import ForkedUse
from aiospin._fallback import Horizon, Mapping, Operation, Reader, Writer

PAGE = _layout.PAGE


class Waits:
    """The hooks that readers and writers of the rig share."""

    def __init__(self) -> None:
        self.suspended: list[tuple[Operation, asyncio.Future[bool]]] = []
        self.suspensions = 0
        self.left: list[Operation] = []
        self.blocked = 0
        self.rechecks: list[float] = []
        self.kicks = 0
        self.peers: list[int] = []
        self.when_parked: Callable[[], object] = lambda: None  # a thread has announced that it is about to sleep
        self.anchor: Any = None
        self.watched: asyncio.AbstractEventLoop | None = None

    def _suspend(self: Any, op: Operation, remaining: float | None) -> asyncio.Future[bool]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[bool] = loop.create_future()
        self.suspensions += 1
        if self.watched is None:
            self.watched = loop
            loop.add_reader(self.fileno(), self.bell_rang)
        known = any(each is op for each, _ in self.suspended)
        self.suspended = [entry for entry in self.suspended if entry[0] is not op]
        self.suspended.insert(0 if known else len(self.suspended), (op, future))
        if remaining is not None:
            loop.call_later(remaining, lambda: future.done() or future.set_result(False))
        self.wake_head()
        return future

    def bell_rang(self: Any) -> None:
        self._drain()
        self.wake_head()

    def wake_head(self: Any) -> None:
        if self.suspended:
            future = self.suspended[0][1]
            if not future.done() and not getattr(self, "_claimed", False) and self._announce():
                future.set_result(True)

    def _leave(self: Any, op: Operation) -> None:
        self.left.append(op)
        self.suspended = [entry for entry in self.suspended if entry[0] is not op]
        if self.suspended:
            self.wake_head()
        else:
            self.unwatch()

    def unwatch(self: Any) -> None:
        if self.watched is not None:
            self.watched.remove_reader(self._bell)
            self.watched = None

    def _kick(self: Any) -> None:
        self.kicks += 1
        self.wake_head()

    def _blocking(self) -> None:
        self.blocked += 1

    def _peer_fds(self) -> list[int]:
        self.when_parked()
        return self.peers

    def _recheck(self, waited: float) -> None:
        self.rechecks.append(waited)


class RigReader(Waits, Reader):
    """A reader that opens itself at first use."""

    def __init__(self, rig: Rig, rank: int, decode: Any = None) -> None:
        super().__init__()
        self.rig = rig
        self.rank = rank
        self.decoder = decode
        self.home = os.getpid()

    def _claim(self) -> None:
        if os.getpid() != self.home:
            raise ForkedUse("made in another process")
        rig = self.rig
        bells = rig.bells[1 + self.rank], rig.bells[0]
        self._open(rig.mapping, self.rank, *bells, Horizon(), self.decoder, rig.checksum, self.anchor)


class RigWriter(Waits, Writer):
    """The writer, which opens itself at first use."""

    def __init__(self, rig: Rig, encode: Any = None, threadsafe: bool = False) -> None:
        super().__init__()
        self.rig = rig
        self.encoder = encode
        self.serialised = threadsafe

    def _claim(self) -> None:
        rig = self.rig
        bells, options = rig.bells, (rig.checksum, self.serialised, self.anchor)
        self._open(rig.mapping, bells[0], bells[1:], Horizon(), self.encoder, *options)
        self._ring_all()


class Rig:
    """One segment with its bells. `words` gives access to any word by its byte offset."""

    def __init__(self, readers: int, capacity: int, checksum: bool = False) -> None:
        self.readers = readers
        self.capacity = capacity
        self.checksum = checksum
        self.fd = os.memfd_create("rig", os.MFD_CLOEXEC)
        os.ftruncate(self.fd, _layout.segment_bytes(readers, capacity))
        self.ring_fd = os.open(f"/proc/self/fd/{self.fd}", os.O_RDONLY | os.O_CLOEXEC)
        self.bells: list[int] = []
        for _ in range(1 + readers):
            end, other = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
            self.bells.append(os.open(f"/proc/self/fd/{end}", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC))
            os.close(end)
            os.close(other)
        self.mapping = self.map()
        self.endpoints: list[Any] = []

    def map(self) -> Mapping:
        return Mapping(self.fd, self.ring_fd, self.readers, self.capacity)

    def reader(self, rank: int = 0, decode: Any = None) -> RigReader:
        self.endpoints.append(RigReader(self, rank, decode))
        return self.endpoints[-1]  # type: ignore[no-any-return]

    def writer(self, encode: Any = None, threadsafe: bool = False) -> RigWriter:
        self.endpoints.append(RigWriter(self, encode, threadsafe))
        return self.endpoints[-1]  # type: ignore[no-any-return]

    def control(self, offset: int) -> int:
        return self.mapping.load(_layout.control_offset(self.readers) + offset)

    def set_control(self, offset: int, value: int) -> None:
        self.mapping.store(_layout.control_offset(self.readers) + offset, value)

    def lines(self, offset: int, rank: int = 0) -> int:
        return self.mapping.load(_layout.reader_offset(self.readers, rank) + offset)

    def set_lines(self, offset: int, value: int, rank: int = 0) -> None:
        self.mapping.store(_layout.reader_offset(self.readers, rank) + offset, value)

    def gate(self, offset: int, rank: int = 0) -> int:
        return self.mapping.load(_layout.gate_offset(self.readers, rank) + offset)

    def published(self) -> int:
        return self.control(_layout.CONTROL_PUBLISHED)

    def released(self, rank: int = 0) -> int:
        return self.lines(_layout.READER_RELEASED, rank)

    def leave(self, reader: RigReader) -> None:
        """What close() does to a rank: an odd stay, and the writer's bell."""
        self.set_lines(_layout.READER_STAY, self.lines(_layout.READER_STAY, reader.rank) | 1, reader.rank)
        reader._shut(None)
        os.write(self.bells[0], b"\0")

    def patch_slot(self, position: int, **fields: int) -> None:
        """Overwrite fields of a slot header in the file."""
        names = ("sequence", "total", "offset", "size", "flags", "checksum")
        at = _layout.ring_offset(self.readers) + position % self.capacity
        header = os.pread(self.fd, _layout.SLOT_HEADER_BYTES, at)
        values = dict(zip(names, _layout.SLOT_HEADER.unpack(header), strict=True)) | fields
        os.pwrite(self.fd, _layout.SLOT_HEADER.pack(*values.values()), at)

    def close(self) -> None:
        for endpoint in self.endpoints:
            endpoint.unwatch()
            endpoint._shut(None)
        self.mapping.close()
        for fd in (self.fd, self.ring_fd, *self.bells):
            os.close(fd)


@contextlib.contextmanager
def rig(readers: int = 1, capacity: int = PAGE, checksum: bool = False) -> Iterator[Rig]:
    """A rig for the length of a block."""
    built = Rig(readers, capacity, checksum)
    try:
        yield built
    finally:
        built.close()


def content(sequence: int, size: int) -> bytes:
    """The bytes that message `sequence` must have."""
    seed = (sequence * 2654435761 + 12345) & 0xFFFFFFFF
    block = bytes((seed >> (8 * (i % 4)) & 255) ^ (i * 31 & 255) for i in range(min(size, 512)))
    return (block * (size // 512 + 1))[:size] if size else b""
