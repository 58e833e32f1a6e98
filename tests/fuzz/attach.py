"""One execution of the kind `attach`: a stranger attaches to a segment whose header, file or handle is not as it was.

The first BITS executions flip each bit of the header and of the bells' table once; the others do as the seed says.
Guarantee: attaching raises AttachError, or what was attached is used as if nothing had happened, and ends there in a
documented error at worst.
"""

from __future__ import annotations

import collections
import contextlib
import os
import random
import shutil
import stat
import struct
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from calls import DOCUMENTED
from damage import nasty
from ends import RING

import aiospin
from aiospin import _layout
from aiospin._handle import Handle, SegmentRef
from aiospin._segment import Segment, registry

# Everything that attaching looks at, bit by bit first: the header, and the table of bells behind it.
BITS = 8 * (_layout.HEADER_BYTES + 2 * _layout.BELL_IDENTITY.size)


@contextlib.contextmanager
def strange(chance: random.Random) -> Iterator[Segment]:
    """A segment of one reader, anonymous or named, that this process has open and does not know."""
    with contextlib.ExitStack() as stack:
        where = stack.enter_context(tempfile.TemporaryDirectory()) if chance.random() < 0.5 else None
        made = Segment.create(readers=1, capacity=RING, directory=where, checksum=chance.random() < 0.5)
        file = made._file
        del registry.segments[file]
        try:
            yield made
        finally:
            registry.segments[file] = made
            made.drop()


def flip(segment: Segment, bit: int) -> None:
    """Flip one bit of what attaching reads: header, then bells."""
    header = 8 * _layout.HEADER_BYTES
    at = bit // 8 if bit < header else _layout.BELLS_OFFSET + (bit - header) // 8
    os.pwrite(segment.fd, bytes([os.pread(segment.fd, 1, at)[0] ^ 1 << bit % 8]), at)


def scribble_header(segment: Segment, chance: random.Random) -> SegmentRef:
    """One to three words of the header or of the bells."""
    places = [*range(0, _layout.HEADER_BYTES, 4), *range(_layout.BELLS_OFFSET, _layout.BELLS_OFFSET + 32, 8)]
    for at in chance.sample(places, chance.randint(1, 3)):
        (old,) = struct.unpack("<Q", os.pread(segment.fd, 8, at))
        os.pwrite(segment.fd, struct.pack("<Q", nasty(chance, old, RING)), at)
    return segment.ref


def agreeing_header(segment: Segment, chance: random.Random) -> SegmentRef:
    """Another shape in which every length fits the others, and maybe the file."""
    readers = chance.choice((0, 1, 2, 100, _layout.MAX_READERS))
    capacity = RING * chance.choice((1, 2, 16, 1 << 12, 1 << 30))
    length = _layout.segment_bytes(readers, capacity)
    packed = bytearray(os.pread(segment.fd, _layout.HEADER_BYTES, 0))
    struct.pack_into("<QQI", packed, 16, length, capacity, readers)
    struct.pack_into("<QQ", packed, 96, _layout.control_offset(readers), _layout.ring_offset(readers))
    os.pwrite(segment.fd, packed, 0)
    if length < 1 << 24 and chance.random() < 0.5:
        with contextlib.suppress(PermissionError):  # sealed
            os.ftruncate(segment.fd, max(length, os.fstat(segment.fd).st_size))  # with a hole at its end
    bells = segment.ref.bell_fds and tuple(chance.choices(segment.ref.bell_fds, k=readers + 1))
    return replace(segment.ref, readers=readers, bell_fds=bells)


def other_length(segment: Segment, chance: random.Random) -> SegmentRef:
    """A file that is shorter, if it can be, or longer, or empty in the middle."""
    whole = os.fstat(segment.fd).st_size
    length = chance.choice((0, 1, 127, 128, 512, 4096, whole // 2, whole - 4096, whole - 1, whole + 1, whole + RING))
    with contextlib.suppress(PermissionError):  # sealed
        os.ftruncate(segment.fd, length)
        if chance.random() < 0.5:
            os.ftruncate(segment.fd, whole)
    return segment.ref


def other_handle(segment: Segment, chance: random.Random) -> SegmentRef:
    """A handle with a wrong number in it."""
    ref = segment.ref
    name = chance.choice(("pid", "start", "pid_namespace", "segment_fd", "device", "inode", "readers", "bell_fds"))
    if name == "bell_fds":
        return replace(ref, bell_fds=tuple(nasty(chance, fd, RING) & 0x7FFFFFFF for fd in ref.bell_fds))
    changes: dict[str, Any] = {name: nasty(chance, getattr(ref, name), RING)}
    return replace(ref, **changes)


def other_modes(segment: Segment, chance: random.Random) -> SegmentRef:
    """A named segment whose directory or files have other modes, or are something else."""
    path = segment.ref.path
    if path is None:
        return other_handle(segment, chance)
    place = os.path.join(path, chance.choice((".", "ring", "bell-0", "bell-1")))
    if chance.random() < 0.5 or place.endswith("."):
        os.chmod(place, chance.choice((0o777, 0o701, 0o755, 0o666, 0o000)))
        return segment.ref
    aside = f"{place}-aside"
    os.rename(place, aside)
    chance.choice((os.mkfifo, os.mkdir, lambda to: os.symlink(aside, to), lambda to: os.link(segment_file(path), to)))(
        place
    )
    return segment.ref


def segment_file(path: str) -> str:
    """The ring file of a named segment, under whatever name it has now."""
    return next(entry.path for entry in os.scandir(path) if stat.S_ISREG(entry.stat(follow_symlinks=False).st_mode))


CHANGES: tuple[Callable[[Segment, random.Random], SegmentRef], ...] = (
    *(scribble_header, scribble_header, agreeing_header, other_length, other_handle, other_modes),
)


def use(ref: SegmentRef, role: int, tally: collections.Counter[str]) -> None:
    """Attach, and do what an end does first."""
    end: Any = aiospin.attach(str(Handle(ref, role, "bytes")))
    try:
        if role == _layout.WRITER:
            end.put_nowait(b"after all")
        else:
            end.get(timeout=0)
    finally:
        end.close()
    tally["works"] += 1


def execute(number: int, chance: random.Random, tally: collections.Counter[str]) -> None:
    """Damage what attaching looks at, then attach."""
    with strange(chance) as segment:
        if number < BITS:
            flip(segment, number)
            ref = segment.ref
        else:
            ref = chance.choice(CHANGES)(segment, chance)
        try:
            use(ref, chance.choice((0, 1)), tally)
        except DOCUMENTED as error:
            tally[type(error).__name__] += 1
        if ref.path is not None:
            shutil.rmtree(ref.path, ignore_errors=True)
