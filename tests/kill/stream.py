"""Messages that prove themselves: which one it is, and that all of it is there.

Guarantee: two messages with different numbers or sizes differ, and a part of one is none.
Assumption: also imported by actors, so it imports nothing of the library.
"""

from __future__ import annotations

import random
import struct

_HEAD = struct.Struct("<QQ")

SMALL = 3000  # bytes: a ring of 64 KiB holds 21 of them
LARGE = 150_000  # passes through such a ring in ten pieces
PER_RING = 65536 // 3072


def message(sequence: int, size: int = SMALL) -> bytes:
    """The bytes of a message."""
    return _HEAD.pack(sequence, size) + random.Random(sequence).randbytes(size - _HEAD.size)


def is_whole(sequence: int, payload: bytes) -> bool:
    """Whether that is the message of that number, all of it."""
    if len(payload) < _HEAD.size or _HEAD.unpack_from(payload) != (sequence, len(payload)):
        return False
    return payload == message(sequence, len(payload))
