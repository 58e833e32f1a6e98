"""Memory of processes over time, and how fast it grows.

Resident memory that is shared (the rings) counts in every process that has touched it, so a worker's grows until it has
touched its ring once; the private part is sampled beside it, and is what would show a leak of objects.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

PAGE = 4096
SETTLED = 0.25
"""the part of a process's samples, at its beginning, that no slope is fitted to"""


def resident(pid: int) -> tuple[int, int] | None:
    """Bytes in memory, and how many of them are private. None when there is no such process."""
    try:
        fields = Path(f"/proc/{pid}/statm").read_text("ascii").split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    total, shared = int(fields[1]) * PAGE, int(fields[2]) * PAGE
    return (total, total - shared) if total else None


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Of the line through them by least squares; 0 for fewer than two moments."""
    if len(points) < 2:
        return 0.0
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else 0.0


@dataclass(frozen=True)
class Growth:
    """Of one process."""

    first: int
    last: int
    """bytes"""
    slope: float
    """bytes a second, of all its resident memory"""
    private_slope: float


@dataclass
class MemoryLog:
    """Samples of the server and of whatever workers it has."""

    samples: dict[int, list[tuple[float, int, int]]] = field(default_factory=dict)

    async def follow(self, pids: Callable[[], Awaitable[Sequence[int]]], every: float) -> None:
        """Sample until cancelled."""
        while True:
            for pid in await pids():
                size = resident(pid)
                if size is not None:
                    self.samples.setdefault(pid, []).append((time.monotonic(), *size))
            await asyncio.sleep(every)

    def growth(self, pid: int) -> Growth | None:
        """None for a process that was hardly seen."""
        of_one = self.samples.get(pid, [])
        settled = of_one[int(len(of_one) * SETTLED) :]
        if len(settled) < 3:
            return None
        return Growth(
            first=settled[0][1],
            last=settled[-1][1],
            slope=slope([(at, total) for at, total, _ in settled]),
            private_slope=slope([(at, private) for at, _, private in settled]),
        )
