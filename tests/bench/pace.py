"""When the sender of a paced case sends, and how late a 1 ms timer of the reader's loop comes meanwhile."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from aiospin.cli.report import percentile

from .contract import Figures, Load

TIMER = 0.001
RATES = {"idle": float("inf"), "10k": 1e-4, "full": 0.0}
"""phase of the lag cases -> seconds between two messages"""


def ticks(interval: float, seconds: float) -> Iterator[None]:
    """Yields whenever a message is due, on a fixed schedule: `interval` 0 is at once, infinity is never."""
    clock = time.perf_counter
    due = clock()
    end = due + seconds
    while (now := clock()) < end:
        if interval == 0:
            yield
        elif now < due:
            time.sleep(min(due, end) - now)
        else:
            yield
            due += interval


async def timer_lags(seconds: float) -> list[float]:
    """How many nanoseconds after its time each sleep of 1 ms came back, over `seconds`."""
    clock = time.perf_counter_ns
    lags = []
    end = clock() + int(seconds * 1e9)
    while (before := clock()) < end:
        await asyncio.sleep(TIMER)
        lags.append(clock() - before - TIMER * 1e9)
    return lags


def compare_lags(load: Load, phase: Callable[[Load], list[float]]) -> Figures:
    """Plays `phase` idle, at 10,000 messages a second and at full speed; p99 of the lags, and what load adds to it."""
    figures: Figures = {}
    for name, interval in RATES.items():
        lags = sorted(phase(replace(load, interval=interval)))
        figures[f"lag_{name}_p99_us"] = percentile(lags, 0.99) / 1e3
    for name in ("10k", "full"):
        figures[f"lag_{name}_over_idle_us"] = figures[f"lag_{name}_p99_us"] - figures["lag_idle_p99_us"]
    return figures
