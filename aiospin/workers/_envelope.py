"""One message between a group and a worker: a fixed head, a name, an encoded body, and buffers in place behind it.

    0      kind, flags, name bytes, body bytes, buffers, call id, deadline      (32 bytes)
    32     name, body, one 8-byte length per buffer
    ...    each buffer on the next multiple of 64 bytes

A slot's payload begins on a multiple of 64, so a buffer lies as it must for any vector instruction, and an array can
be a view of the slot.

Guarantee: `Envelope.parse` raises CorruptMessage for lengths that the message does not have.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from aiospin._errors import AiospinError

_HEAD: Final = struct.Struct("<BBHIIxxxxQQ")
_LENGTH: Final = struct.Struct("<Q")
_ALIGN: Final = 64
_ZEROS: Final = bytes(_ALIGN)


class CorruptMessage(AiospinError):
    """What came through the queue is no message of this protocol."""


class Kind(enum.IntEnum):
    """What a message is. The first three go to a worker, the others come from it."""

    CALL = 1
    BROADCAST = 2  # the call lies in the broadcast queue under this id
    CANCEL = 3
    STARTED = 16  # the process runs and is about to import and construct
    READY = 17
    FAILED = 18  # the start failed
    RESULT = 19
    PART = 20
    END = 21
    ERROR = 22
    LEAVING = 23  # after a SIGTERM: what was not answered by now was not begun


class Flag(enum.IntFlag):
    """What is special about it."""

    STREAM = 1  # a call whose results are streamed
    ASYNC = 2  # on READY: calls run at once, beside each other


class Envelope(NamedTuple):
    """A message that was received. Body and buffers are views of the slot."""

    kind: int
    flags: int
    id: int
    deadline_ns: int
    """CLOCK_MONOTONIC, which all processes of a machine share; 0 for none."""
    name: str
    body: memoryview
    buffers: Sequence[memoryview]

    @classmethod
    def parse(cls, data: memoryview) -> Envelope:
        """Take a message apart without copying."""
        size = len(data)
        if size < _HEAD.size:
            raise CorruptMessage(f"a message of {size} bytes has no head")
        kind, flags, name_bytes, body_bytes, count, number, deadline = _HEAD.unpack_from(data)
        body_at = _HEAD.size + name_bytes
        at = body_at + body_bytes
        if at + count * _LENGTH.size > size:
            raise CorruptMessage(f"a message of {size} bytes claims a name, a body and a table of {at} bytes")
        name = ""
        if name_bytes:
            try:
                name = str(data[_HEAD.size : body_at], "utf-8")
            except UnicodeDecodeError as error:
                raise CorruptMessage(f"a name is no UTF-8: {error}") from error
        if count == 0:
            return cls(kind, flags, number, deadline, name, data[body_at:at], ())
        lengths = [_LENGTH.unpack_from(data, at + i * _LENGTH.size)[0] for i in range(count)]
        at += count * _LENGTH.size
        buffers: list[memoryview] = []
        for length in lengths:
            at = -(-at // _ALIGN) * _ALIGN
            if at + length > size:
                raise CorruptMessage(f"a message of {size} bytes claims a buffer of {length} bytes at {at}")
            buffers.append(data[at : at + length])
            at += length
        return cls(kind, flags, number, deadline, name, data[body_at : body_at + body_bytes], buffers)


def pack(
    kind: Kind,
    number: int = 0,
    name: bytes = b"",
    body: bytes = b"",
    buffers: Sequence[Any] = (),
    *,
    flags: int = 0,
    deadline_ns: int = 0,
) -> list[Any]:
    """The pieces of a message, for a gathering put: nothing but the head is copied here. `buffers` are byte views."""
    head = _HEAD.pack(kind, flags, len(name), len(body), len(buffers), number, deadline_ns) + name + body
    if not buffers:
        return [head]
    head += b"".join(_LENGTH.pack(len(buffer)) for buffer in buffers)
    pieces, at = [head], len(head)
    for buffer in buffers:
        padding = -at % _ALIGN
        if padding:
            pieces.append(_ZEROS[:padding])
        pieces.append(buffer)
        at += padding + len(buffer)
    return pieces
