"""What a queue and its waits came to, as one frozen snapshot.

Guarantee: reads shared words without stopping anybody, so numbers of one snapshot may be moments apart.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from aiospin import _layout
from aiospin._segment import Segment


@dataclass(frozen=True)
class Statistics:
    """Cursors and lags are bytes of the ring, slot headers included; the rest counts events in this process."""

    capacity: int
    published: int
    """The published cursor: bytes ever published."""
    depth: int
    """Bytes that the slowest gating reader has not released."""
    lag: tuple[int | None, ...]
    """The same for each rank; None for a rank that does not gate the writer."""
    read: int = 0
    """Messages taken."""
    written: int = 0
    """Messages published."""
    ready: int = 0
    """Calls that were served without a wait."""
    inline: int = 0
    """Waits that ended while watching in place."""
    monitor: int = 0
    """Waits that were handed to the waiter thread, or ended while watching for longer in the calling thread."""
    parks: int = 0
    """Times that a wait announced that it sleeps."""
    rings: int = 0
    """Bells rung for peers."""
    signals: int = 0
    """Sleeps that a signal ended."""
    leases: int = 0
    """Slots held now."""
    views: int = 0
    """Of these, slots that were left while views of their bytes live on."""


_COUNTERS = ("ready", "inline", "monitor", "parks", "rings", "signals", "leases", "views")


class Counting(Protocol):
    """An end of a queue."""

    @property
    def rank(self) -> int | None: ...
    @property
    def _opened(self) -> bool: ...
    def _counters(self) -> dict[str, int]: ...


def survey(segment: Segment, ends: Iterable[Counting]) -> Statistics:
    """Look at the segment, and sum what its ends counted in this process."""
    published = published_in(segment)
    lag = lag_of_each(segment)
    sums = dict.fromkeys(_COUNTERS, 0)
    messages = {"read": 0, "written": 0}
    for end in ends:
        if not end._opened:
            continue
        counted = end._counters()
        messages["written" if end.rank is None else "read"] += counted["messages"]
        for name in _COUNTERS:
            sums[name] += counted.get(name, 0)
    depth = max((bytes_ for bytes_ in lag if bytes_ is not None), default=0)
    return Statistics(segment.capacity, published, depth, lag, **messages, **sums)


def lag_of_each(segment: Segment) -> tuple[int | None, ...]:
    """For each rank the bytes that it has not released; None for one that does not gate the writer."""
    load, readers = segment.mapping.load, segment.readers
    published = published_in(segment)
    lag: list[int | None] = []
    for rank in range(readers):
        lines, gate = _layout.reader_offset(readers, rank), _layout.gate_offset(readers, rank)
        stay = load(lines + _layout.READER_STAY)
        gates = stay % 2 == 0 and stay == load(gate + _layout.GATE_GATE)
        lag.append(max(0, published - _released(segment, rank)) if gates else None)
    return tuple(lag)


def taken_by(segment: Segment, rank: int) -> int:
    """Bytes of the ring that this reader has taken and not given back: slots and views that are held."""
    return max(0, acquired_by(segment, rank) - _released(segment, rank))


def acquired_by(segment: Segment, rank: int) -> int:
    """Up to where this reader, or one before it, has taken."""
    return segment.mapping.load(_layout.reader_offset(segment.readers, rank) + _layout.READER_ACQUIRED)


def published_in(segment: Segment) -> int:
    """The published cursor."""
    return segment.mapping.load(_layout.control_offset(segment.readers) + _layout.CONTROL_PUBLISHED)


def _released(segment: Segment, rank: int) -> int:
    load, readers = segment.mapping.load, segment.readers
    cursor = load(_layout.reader_offset(readers, rank) + _layout.READER_RELEASED)
    return max(cursor, load(_layout.gate_offset(readers, rank) + _layout.GATE_START))
