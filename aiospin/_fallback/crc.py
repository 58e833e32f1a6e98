"""CRC-32C (Castagnoli), eight bytes a step.

Guarantee: the same value as the processors' crc32 instructions. Assumption: none; the tables are made at first use.
"""

from __future__ import annotations

import functools
import struct
from typing import Final

_POLYNOMIAL: Final = 0x82F63B78  # reflected


@functools.cache
def _tables() -> tuple[tuple[int, ...], ...]:
    first: list[int] = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = (crc >> 1) ^ (_POLYNOMIAL if crc & 1 else 0)
        first.append(crc)
    tables = [tuple(first)]
    for _ in range(7):
        before = tables[-1]
        tables.append(tuple(first[crc & 255] ^ (crc >> 8) for crc in before))
    return tuple(tables)


def crc32c(payload: memoryview) -> int:
    """The checksum of a contiguous view of bytes."""
    t0, t1, t2, t3, t4, t5, t6, t7 = _tables()
    crc = 0xFFFFFFFF
    whole = len(payload) & ~7
    for (word,) in struct.iter_unpack("<Q", payload[:whole]):
        word ^= crc
        crc = (
            t7[word & 255]
            ^ t6[(word >> 8) & 255]
            ^ t5[(word >> 16) & 255]
            ^ t4[(word >> 24) & 255]
            ^ t3[(word >> 32) & 255]
            ^ t2[(word >> 40) & 255]
            ^ t1[(word >> 48) & 255]
            ^ t0[word >> 56]
        )
    for byte in payload[whole:]:
        crc = t0[(crc ^ byte) & 255] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF
