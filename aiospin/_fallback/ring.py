"""Slots in the ring: where each word of the segment lies, how a slot header is packed, and what must hold of it.

Guarantee: nothing read from shared memory is used as a length or a position before it was checked here.
Assumption: the ring is mapped twice back to back, so a position modulo the capacity starts an unbroken run.
"""

from __future__ import annotations

import enum
from typing import Final

from aiospin import _layout
from aiospin._errors import CorruptSlot
from aiospin._fallback.crc import crc32c

HEADER: Final = _layout.SLOT_HEADER
HEADER_BYTES: Final = _layout.SLOT_HEADER_BYTES
NO_LIMIT: Final = 1 << 66  # no gating reader: beyond every cursor


class Outcome(enum.Enum):
    """What an attempt says when it has neither a result nor an error."""

    NOT_READY = 0


NOT_READY: Final = Outcome.NOT_READY


class WriterWords:
    """Indices of the words that belong to the owner and the writer."""

    def __init__(self, readers: int) -> None:
        base = _layout.control_offset(readers)
        self.shutdown = (base + _layout.CONTROL_SHUTDOWN) >> 3
        self.published = (base + _layout.CONTROL_PUBLISHED) >> 3
        self.journal = (base + _layout.CONTROL_JOURNAL) >> 3
        self.needed = (base + _layout.CONTROL_ROOM_NEEDED) >> 3
        self.epoch = (base + _layout.CONTROL_ROOM_EPOCH) >> 3
        self.closed = (base + _layout.CONTROL_WRITER_CLOSED) >> 3
        self.ranks = tuple(RankWords(readers, rank) for rank in range(readers))


class RankWords:
    """Indices of the words that belong to one rank, its gate included."""

    def __init__(self, readers: int, rank: int) -> None:
        base = _layout.reader_offset(readers, rank)
        gate = _layout.gate_offset(readers, rank)
        self.rank = rank
        self.released = (base + _layout.READER_RELEASED) >> 3
        self.epoch = (base + _layout.READER_PARK_EPOCH) >> 3
        self.stay = (base + _layout.READER_STAY) >> 3
        self.acquired = (base + _layout.READER_ACQUIRED) >> 3
        self.gate = (gate + _layout.GATE_GATE) >> 3
        self.start = (gate + _layout.GATE_START) >> 3
        self.rang_at = (gate + _layout.GATE_RANG_AT) >> 3

    def gates(self, words: memoryview) -> bool:
        """The writer waits for this rank: its wish to stay is confirmed, and it has not left."""
        stay: int = words[self.stay]
        # A dropped reader that then leaves has an odd stay equal to its gate: it gates nothing.
        return not stay & 1 and stay == words[self.gate]

    def position(self, words: memoryview) -> int:
        """Up to where this rank has given slots back."""
        return max(words[self.released], words[self.start])


def check_published(published: int, cursor: int, capacity: int) -> None:
    """The published cursor is aligned, not behind the reader, and at most one ring ahead."""
    if published & (_layout.SLOT_ALIGN - 1) or not cursor <= published <= cursor + capacity:
        raise CorruptSlot(
            f"published cursor {published} is impossible for a reader at {cursor} of a ring of {capacity} bytes"
        )


def check_extent(position: int, size: int, offset: int, total: int, published: int, capacity: int) -> int:
    """The slot lies within what was published and within its message; returns where the next slot begins."""
    if size > capacity - HEADER_BYTES:
        raise CorruptSlot(f"slot at {position} claims {size} bytes in a ring of {capacity}")
    if offset + size > total or (size == 0 and total != 0) or total > _layout.LARGEST_MESSAGE:
        raise CorruptSlot(f"slot at {position} claims bytes {offset}..{offset + size} of a message of {total}")
    end = position + _layout.stride(size)
    if end > published:
        raise CorruptSlot(f"slot at {position} ends at {end}, beyond the published cursor {published}")
    return end


def check_bytes(position: int, checksum: int, payload: memoryview) -> None:
    """The payload has the checksum that its header promises: each slot of a queue with checksums has one."""
    found = crc32c(payload)
    if found != checksum:
        raise CorruptSlot(f"slot at {position} has checksum {found:#010x}, its header says {checksum:#010x}")
