"""Messages that prove themselves: every byte follows from a number that is used once.

    nonce   u64   of this message alone; grows along the stream, across writers too
    top     u64   the message's number in the queue, as its writer counted
    slack   u32   how many messages queued before this one were being cancelled: the number is top - slack to top
    size    u32   bytes in all
    ...           a piece of BLOB, whose place follows from the nonce

Guarantee: `read` accepts no message that was cut, mixed with another one, or changed.
"""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass
from typing import Any

HEADER = struct.Struct("<QQII")
LEAST = HEADER.size
MOST = 1 << 19
BLOB = random.Random("storm").randbytes(1 << 20)


class Violation(AssertionError):
    """Something happened that no storm excuses."""


@dataclass(frozen=True)
class Message:
    """What a message says of itself."""

    nonce: int
    low: int
    high: int
    size: int


def write(nonce: int, top: int, slack: int, size: int) -> bytes:
    """The bytes of a message of `size` bytes, at least LEAST and at most MOST."""
    return HEADER.pack(nonce, top, slack, size) + _tail(nonce, size)


def read(payload: Any) -> Message:
    """What it is. Violation unless every byte is right."""
    if len(payload) < LEAST:
        raise Violation(f"a message of {len(payload)} bytes, which no writer has sent")
    nonce, top, slack, size = HEADER.unpack_from(payload)
    if len(payload) != size or size > MOST:
        raise Violation(f"message {top} (nonce {nonce:#x}) has {len(payload)} bytes and says {size}")
    if bytes(payload[LEAST:]) != _tail(nonce, size):
        raise Violation(f"message {top} (nonce {nonce:#x}, {size} bytes) is damaged")
    return Message(nonce, top - slack, top, size)


def _tail(nonce: int, size: int) -> bytes:
    length = size - LEAST
    begin = nonce * 0x9E3779B97F4A7C15 % (len(BLOB) - length)
    return BLOB[begin : begin + length]
