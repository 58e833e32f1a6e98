"""CPU time of worker processes, from /proc.

Guarantee: a process that is gone counts as None, never as an error.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable

_TICK = 1 / os.sysconf("SC_CLK_TCK")


def seconds_of(pid: int) -> float | None:
    """User and system time that a process has used so far. None for one that is gone, and for pid 0."""
    if pid == 0:
        return None
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stat:
            fields = stat.read().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return (int(fields[11]) + int(fields[12])) * _TICK


class Shares:
    """What share of a core each process has used since the last look, in percent."""

    def __init__(self) -> None:
        self._before: dict[int, tuple[float, float]] = {}

    def look(self, pids: Iterable[int]) -> dict[int, float]:
        """By pid; 0 for those that are seen for the first time, nothing for those that are gone."""
        now = time.monotonic()
        seen = {pid: (now, used) for pid in pids if (used := seconds_of(pid)) is not None}
        shares = {pid: self._share(pid, now, used) for pid, (_, used) in seen.items()}
        self._before = seen
        return shares

    def _share(self, pid: int, now: float, used: float) -> float:
        at, before = self._before.get(pid, (now, used))
        return 100 * (used - before) / (now - at) if now > at else 0.0
