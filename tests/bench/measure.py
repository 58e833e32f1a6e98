"""Clocks and counters that the cases share. All durations in nanoseconds unless the name says otherwise."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from aiospin.cli.cpu import cpu_ns
from aiospin.cli.report import percentile

from .contract import Figures, Load


def latency(one_way_ns: Sequence[float]) -> Figures:
    """The usual figures of one way latencies, the first tenth left out as warm-up."""
    ordered = sorted(one_way_ns[len(one_way_ns) // 10 :])
    return {
        "p50_us": percentile(ordered, 0.50) / 1e3,
        "p99_us": percentile(ordered, 0.99) / 1e3,
        "mean_us": sum(ordered) / len(ordered) / 1e3,
    }


def round_trips(stamps: Sequence[int]) -> Figures:
    """One way latencies from the clock read once per round trip."""
    return latency([(after - before) / 2 for before, after in pairwise(stamps)])


def rate(load: Load, messages: int, start_ns: int) -> Figures:
    """Figures of `messages` of `load.nbytes` that were taken since `start_ns` of perf_counter_ns."""
    seconds = (time.perf_counter_ns() - start_ns) / 1e9
    return {"per_s": messages / seconds, "gb_per_s": messages * load.nbytes / seconds / 1e9}


def wakeups(pid: int) -> int:
    """How often the living threads of a process went to sleep in the kernel by themselves, so far."""
    total = 0
    for status in Path(f"/proc/{pid}/task").glob("*/status"):
        for line in status.read_text().splitlines():
            if line.startswith("voluntary_ctxt_switches:"):
                total += int(line.split()[1])
    return total


class CpuMeter:
    """Per cent of one core that a process used since this object was made."""

    def __init__(self, pid: int | None = None) -> None:
        self._pid = os.getpid() if pid is None else pid
        self._cpu = cpu_ns(self._pid)
        self._wall = time.perf_counter_ns()

    def percent(self) -> float:
        return 100.0 * (cpu_ns(self._pid) - self._cpu) / (time.perf_counter_ns() - self._wall)
