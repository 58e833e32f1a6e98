"""The header of a segment: packing it once at creation, and believing nothing in it at attach.

Guarantee: `check` accepts a header only if every length in it equals what the layout functions say and the file holds
it; whoever passes it can map the segment without another bounds check on these numbers.
Assumption: the file is only read with pread, never mapped here.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import astuple, dataclass

from aiospin import _layout
from aiospin._errors import AttachError, LayoutMismatch


@dataclass(frozen=True)
class Header:
    """The fields in the order of the bytes."""

    magic: int
    version: int
    word_bytes: int
    segment_bytes: int
    capacity: int
    readers: int
    flags: int
    identity: bytes
    creator_pid: int
    creator_start: int
    boot_id: bytes
    pid_namespace: int
    control_offset: int
    ring_offset: int
    segment_device: int
    segment_inode: int

    @property
    def checksum(self) -> bool:
        """Slots carry a CRC-32C."""
        return bool(self.flags & _layout.HEADER_CHECKSUM)


@dataclass(frozen=True)
class FileId:
    """What tells one open file from every other on this machine."""

    device: int
    inode: int

    @classmethod
    def of(cls, fd: int) -> FileId:
        """That of an open descriptor."""
        status = os.fstat(fd)
        return cls(status.st_dev, status.st_ino)


def write(fd: int, header: Header, bells: Sequence[FileId]) -> None:
    """Write the header and the bells' identities; the magic comes last, so a half-written header is none."""
    table = b"".join(_layout.BELL_IDENTITY.pack(bell.device, bell.inode) for bell in bells)
    packed = _layout.HEADER.pack(*astuple(header))
    os.pwrite(fd, table, _layout.BELLS_OFFSET)
    os.pwrite(fd, packed[8:], 8)
    os.pwrite(fd, packed[:8], 0)


def read(fd: int, name: str) -> Header:
    """Read what claims to be a header. AttachError if the file is too short for one."""
    packed = os.pread(fd, _layout.HEADER_BYTES, 0)
    if len(packed) < _layout.HEADER_BYTES:
        raise AttachError(f"{name} is too short: {len(packed)} bytes, a header has {_layout.HEADER_BYTES}")
    return Header(*_layout.HEADER.unpack(packed))


def check(fd: int, header: Header, name: str, *, boot_id: bytes) -> None:
    """Raise AttachError (LayoutMismatch for another version) naming the first thing that is not as it must be."""
    if header.magic != _layout.MAGIC:
        raise AttachError(f"{name} is not an aiospin segment: it begins with {header.magic:#018x}")
    if header.version != _layout.LAYOUT_VERSION:
        raise LayoutMismatch(name, header.version, _layout.LAYOUT_VERSION)
    if header.readers > _layout.MAX_READERS:
        raise AttachError(f"{name} is damaged: it claims {header.readers} readers, at most {_layout.MAX_READERS}")
    if header.capacity == 0 or header.capacity % _layout.RING_ALIGN:
        raise AttachError(f"{name} is damaged: its capacity is {header.capacity}, no multiple of {_layout.RING_ALIGN}")
    if header.flags & ~_layout.HEADER_CHECKSUM:
        raise AttachError(f"{name} is damaged: unknown flags {header.flags:#x}")
    for field, expected in _derived(header).items():
        if getattr(header, field) != expected:
            raise AttachError(f"{name} is damaged: {field} is {getattr(header, field)}, not {expected}")
    length = os.fstat(fd).st_size
    if length < header.segment_bytes:
        raise AttachError(f"{name} is too short: {length} bytes of {header.segment_bytes}")
    if header.boot_id != boot_id:
        raise AttachError(f"{name} was made on another machine, or before this one last started (boot id)")
    made_as = FileId(header.segment_device, header.segment_inode)
    if FileId.of(fd) != made_as:
        raise AttachError(
            f"{name} is a copy: its header belongs to inode {made_as.inode}, the file is {FileId.of(fd).inode}"
        )


def bell(fd: int, role: int) -> FileId:
    """The identity of a role's bell, as the header states it."""
    return FileId(*_layout.BELL_IDENTITY.unpack(os.pread(fd, _layout.BELL_IDENTITY.size, _layout.bell_offset(role))))


def _derived(header: Header) -> dict[str, int]:
    return {
        "word_bytes": _layout.WORD_BYTES,
        "control_offset": _layout.control_offset(header.readers),
        "ring_offset": _layout.ring_offset(header.readers),
        "segment_bytes": _layout.segment_bytes(header.readers, header.capacity),
    }
