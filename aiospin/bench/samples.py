"""From samples to figures: ranks, and ratios that are taken within a round. Durations are in nanoseconds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import Final

Figures = dict[str, float]

WARM_UP: Final = 10
"""one sample in so many is left out, at the beginning"""
RANKS: Final = (*(n / 200 for n in range(199)), 0.995, 0.999, 1.0)
"""which ranks of a distribution are kept for a curve"""


def percentile(ordered: Sequence[float], part: float) -> float:
    """The value below which `part` (0..1) of an ordered, non-empty sequence lies; nearest rank."""
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


def steady(samples: Sequence[float]) -> list[float]:
    """Those after the warm-up, ordered. At least one is left of one."""
    return sorted(samples[len(samples) // WARM_UP :])


def ranked(samples: Sequence[float], prefix: str = "") -> Figures:
    """p50, p99 and p99.9 in microseconds; a rank is left out that too few samples stand behind."""
    ordered = steady(samples)
    return {
        f"{prefix}{name}_us": percentile(ordered, part) / 1e3
        for name, part, needed in (("p50", 0.5, 1), ("p99", 0.99, 100), ("p999", 0.999, 1000))
        if len(ordered) >= needed
    }


def curve(samples: Sequence[float]) -> list[float]:
    """The samples' values in microseconds at RANKS. Empty for no samples."""
    ordered = steady(samples)
    return [round(percentile(ordered, rank) / 1e3, 4) for rank in RANKS] if ordered else []


def halves(stamps: Sequence[int]) -> list[float]:
    """One way times from a clock that was read once per round trip."""
    return [(after - before) / 2 for before, after in pairwise(stamps)]


def middle(rounds: Iterable[Mapping[str, float]], name: str) -> float | None:
    """The median of a figure over the rounds that have it."""
    values = [figures[name] for figures in rounds if name in figures]
    return median(values) if values else None


def ratios(
    ours: Sequence[Mapping[str, float] | None], theirs: Sequence[Mapping[str, float] | None], name: str
) -> list[float]:
    """ours / theirs for each round in which both have the figure, ordered."""
    return sorted(
        mine[name] / other[name]
        for mine, other in zip(ours, theirs, strict=False)
        if mine is not None and other is not None and name in mine and other.get(name)
    )
