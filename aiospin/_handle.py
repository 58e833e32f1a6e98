"""Handles: the text that names one role of one segment, for command lines, environments and JSON.

Guarantee: `Handle.parse(str(handle)) == handle`; anything else that parse accepts is well-formed down to the last
field, and what it refuses is refused with an AttachError that says what is wrong. The text is one word of
[A-Za-z0-9._-]. A handle also pickles as its text: unpickling one calls `restored` with it, and nothing else.
Assumption: a handle is a name and not a permission; it holds no secret, and the kernel decides who may follow it.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import reprlib
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn, TypeGuard

from aiospin import _layout
from aiospin._errors import AttachError, LayoutMismatch

_PREFIX = "aiospin-"
_SHOWN = 40  # characters of a bad handle that an error repeats


@dataclass(frozen=True)
class SegmentRef:
    """Where a segment is: in the owner's descriptors, or in a directory."""

    pid: int  # the owner, in `pid_namespace`
    start: int  # its start time in clock ticks since boot
    boot_id: bytes
    pid_namespace: int
    segment_fd: int  # descriptor numbers in the owner
    bell_fds: tuple[int, ...]  # one per role; empty for a named segment
    device: int
    inode: int
    identity: bytes
    readers: int
    path: str | None  # the directory of a named segment

    @property
    def short(self) -> str:
        """Enough of the identity to tell segments apart, for logs."""
        return self.identity.hex()[:12]

    @property
    def name(self) -> str:
        """What errors call this segment."""
        return f"segment {self.short} ({self.path or f'anonymous, owner pid {self.pid}'})"


@dataclass(frozen=True)
class Handle:
    """One role of one segment, and the codec that both ends speak there."""

    segment: SegmentRef
    role: int
    codec: str

    def __str__(self) -> str:
        ref = self.segment
        fields = [
            *(self.role, self.codec, ref.pid, ref.start, ref.boot_id.hex(), ref.pid_namespace, ref.segment_fd),
            *(list(ref.bell_fds), ref.device, ref.inode, ref.identity.hex(), ref.readers, ref.path),
        ]
        body = base64.urlsafe_b64encode(json.dumps(fields, separators=(",", ":")).encode()).decode().rstrip("=")
        return f"{_PREFIX}{_layout.LAYOUT_VERSION}.{body}.{zlib.crc32(body.encode()):08x}"

    def __reduce__(self) -> tuple[Callable[[object], Handle], tuple[str]]:
        return restored, (str(self),)

    def _checked(self) -> Handle:
        """The same, each field checked as if it had come as text. AttachError for one that was put together by hand."""
        try:
            text = str(self)
        except (AttributeError, TypeError, ValueError, RecursionError) as error:
            raise AttachError(f"this Handle does not hold what a handle of aiospin holds: {error}") from error
        return Handle.parse(text)

    @classmethod
    def parse(cls, text: object) -> Handle:
        """Read a handle back. AttachError (LayoutMismatch for another version) names what is wrong with the text.

        TypeError if it is no text.
        """
        if not isinstance(text, str):
            raise TypeError(f"a handle is text, got {_brief(text)}")
        version, body = _open(text.strip())
        if version != _layout.LAYOUT_VERSION:
            raise LayoutMismatch(f"the handle {_shown(text)}", version, _layout.LAYOUT_VERSION)
        try:
            fields = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
        except (binascii.Error, ValueError, RecursionError):  # the last for thousands of brackets
            _refuse(text, "its body is not what a handle holds")
        return _Fields(text, fields).handle()


def restored(text: object) -> Handle:
    """What unpickling a handle calls: `Handle.parse`, by a name of its own so that nothing else is looked up."""
    return Handle.parse(text)


def _open(text: str) -> tuple[int, str]:
    """Split off version and body, the checksum having been verified."""
    if not text.startswith(_PREFIX):
        _refuse(text, f"it does not begin with {_PREFIX!r}")
    version, _, rest = text[len(_PREFIX) :].partition(".")
    body, _, checksum = rest.partition(".")
    if not (version.isascii() and version.isdigit() and len(version) < 10):
        _refuse(text, f"its version is {version[:_SHOWN]!r}")
    if len(checksum) != 8 or not text.isascii():
        _refuse(text, "it is truncated, or something was appended")
    if checksum != f"{zlib.crc32(body.encode()):08x}":
        _refuse(text, "its checksum does not fit: it is truncated or altered")
    return int(version), body


class _Fields:
    """The decoded list of a handle, each item checked for type and range."""

    def __init__(self, text: str, fields: Any) -> None:
        self.text = text
        if not _is_list(fields) or len(fields) != 13:
            _refuse(text, "it has not the 13 fields of a handle")
        self.fields = fields

    def handle(self) -> Handle:
        readers = self.number(11, "readers", _layout.MAX_READERS)
        path = self.path(12)
        ref = SegmentRef(
            pid=self.number(2, "pid"),
            start=self.number(3, "start time"),
            boot_id=self.sixteen_bytes(4, "boot id"),
            pid_namespace=self.number(5, "PID namespace"),
            segment_fd=self.number(6, "descriptor"),
            bell_fds=self.bells(7, 0 if path else readers + 1),
            device=self.number(8, "device"),
            inode=self.number(9, "inode"),
            identity=self.sixteen_bytes(10, "identity"),
            readers=readers,
            path=path,
        )
        role = self.number(0, "role")
        if role > readers:
            _refuse(self.text, f"rank {role - 1} is out of range: the segment has {readers} readers")
        return Handle(ref, role, self.word(1, "codec"))

    def number(self, index: int, what: str, largest: int = (1 << 64) - 1) -> int:
        value = self.fields[index]
        if type(value) is not int or not 0 <= value <= largest:
            _refuse(self.text, f"its {what} is {_brief(value)}, not a number from 0 to {largest}")
        return value

    def word(self, index: int, what: str) -> str:
        value = self.fields[index]
        if not isinstance(value, str):
            _refuse(self.text, f"its {what} is {_brief(value)}, not text")
        return value

    def sixteen_bytes(self, index: int, what: str) -> bytes:
        try:
            value = bytes.fromhex(self.word(index, what))
        except ValueError:
            value = b""
        if len(value) != 16:
            _refuse(self.text, f"its {what} is {_brief(self.fields[index])}, not 32 hexadecimal digits")
        return value

    def path(self, index: int) -> str | None:
        if self.fields[index] is None:
            return None
        value = self.word(index, "path")
        try:
            os.fsencode(value)
        except UnicodeEncodeError:
            _refuse(self.text, f"its path is {_brief(value)}, which no file can be called")
        if not value.startswith("/") or "\0" in value:
            _refuse(self.text, f"its path is {_brief(value)}, not an absolute one")
        return value

    def bells(self, index: int, expected: int) -> tuple[int, ...]:
        value = self.fields[index]
        if not _is_list(value) or len(value) != expected:
            _refuse(self.text, f"it does not name {expected} bells")
        if not all(type(fd) is int and 0 <= fd < 1 << 31 for fd in value):
            _refuse(self.text, "one of its bells is not a descriptor number")
        return tuple(value)


def _is_list(value: object) -> TypeGuard[list[Any]]:
    return isinstance(value, list)


def _brief(value: object) -> str:
    """What an error repeats of a value that may be anything."""
    text = reprlib.repr(value)
    return text if len(text) <= 2 * _SHOWN else text[: 2 * _SHOWN] + "..."


def _shown(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "...")


def _refuse(text: str, why: str) -> NoReturn:
    raise AttachError(f"{_shown(text)} is not a handle of aiospin: {why}")
