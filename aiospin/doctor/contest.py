"""The ways to wait that this machine has, each measured in its turn: watts, wake-ups, CPU time.

Guarantee: one way that fails is said so, and the others are measured all the same. Ways follow each other and never
run at once, so that a meter of the whole machine can tell them apart.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from aiospin._policy import RUNGS
from aiospin.doctor.fact import Fact, warning
from aiospin.doctor.meters import Meter
from aiospin.doctor.stand import BARE, Failed, Stand

OTHERS: Final = ("park", "busy poll")
LOOK: Final = 0.05
"""seconds between two looks at a meter"""


@dataclass(frozen=True)
class Result:
    """Of one way. None is what was not measured."""

    mode: str
    failure: str | None = None
    watts: float | None = None
    samples: int = 0
    p50_us: float | None = None
    p99_us: float | None = None
    cpu_share: float | None = None
    switches_per_s: float | None = None
    instructions_per_s: float | None = None
    cycles_per_s: float | None = None
    uncounted: str | None = None


@dataclass(frozen=True)
class Outcome:
    """Of a contest."""

    seconds: float
    load: float
    """of the machine, before it began"""
    meter: str | None
    no_meter: str | None
    results: tuple[Result, ...]


Play = Callable[[str, float, Meter | None], Result]


def contest(
    rungs: Sequence[str],
    seconds: float,
    found: tuple[Meter | None, str],
    progress: Callable[[str, int, int], None],
    play: Play | None = None,
) -> Outcome:
    """Measure every way for so long. `found` is what find_meter said; `progress(mode, number, of)` tells of each."""
    meter, name = found
    load = os.getloadavg()[0]
    modes = [*([BARE] if meter is not None else []), *rungs, *OTHERS]
    results: list[Result] = []
    for number, mode in enumerate(modes, 1):
        progress(mode, number, len(modes))
        try:
            results.append((play or measure)(mode, seconds, meter))
        except (Failed, OSError) as error:
            results.append(Result(mode, failure=str(error)))
    return Outcome(seconds, load, name if meter else None, None if meter else name, tuple(results))


def measure(mode: str, seconds: float, meter: Meter | None) -> Result:
    """One way, in a child of its own."""
    with Stand(mode) as stand:
        look = _paced(meter)
        if meter is not None:
            meter.begin()
        took = stand.store(seconds, look)
        watts = None if meter is None else meter.watts(took)
        return Result(mode, watts=watts) if mode == BARE else figures(mode, watts, stand.finish())


def _paced(meter: Meter | None) -> Callable[[], None]:
    """Looks at a meter when it is time to."""
    due = time.monotonic() + LOOK

    def look() -> None:
        nonlocal due
        if meter is not None and time.monotonic() >= due:
            meter.look()
            due = time.monotonic() + LOOK

    return look


def figures(mode: str, watts: float | None, said: dict[str, Any]) -> Result:
    """From what a child said of its waits."""
    ordered, seconds = said["latencies_ns"], said["wall_ns"] / 1e9

    def rank(part: float) -> float | None:
        return ordered[min(len(ordered) - 1, int(part * len(ordered)))] / 1e3 if ordered else None

    def rate(count: int | None) -> float | None:
        return None if count is None else count / seconds

    return Result(
        mode,
        watts=watts,
        samples=len(ordered),
        p50_us=rank(0.5),
        p99_us=rank(0.99),
        cpu_share=said["cpu_ns"] / said["wall_ns"],
        switches_per_s=rate(said["voluntary"] + said["involuntary"]),
        instructions_per_s=rate(said["instructions"]),
        cycles_per_s=rate(said["cycles"]),
        uncounted=said["uncounted"],
    )


def judge(outcome: Outcome, chosen: str) -> Iterator[Fact]:
    """What the figures say against the rung that waits idle with, and ways that failed."""
    by_mode = {result.mode: result for result in outcome.results}
    for result in outcome.results:
        if result.failure is not None:
            yield warning(
                result.mode.replace(" ", "_"),
                f"failed: {result.failure}",
                None,
                f"{result.mode} could not be measured: {result.failure}.",
                "Measure again, and longer (--seconds)."
                + (" If it fails again, choose another rung (AIOSPIN_RUNG)." if result.mode in RUNGS else ""),
            )
    ours, park = by_mode.get(chosen), by_mode.get("park")
    if chosen == "park" or ours is None or ours.p50_us is None or park is None or park.p50_us is None:
        return
    if ours.p50_us > park.p50_us:
        yield warning(
            chosen,
            f"wakes after {ours.p50_us:.3g} us, park after {park.p50_us:.3g} us",
            ours.p50_us,
            f"Watching with {chosen} takes longer to notice a store ({ours.p50_us:.3g} us) than sleeping until it "
            f"rings ({park.p50_us:.3g} us): it costs CPU time for nothing.",
            "If CPUs are free and it stays so, choose another with AIOSPIN_RUNG, or the policy `eco`.",
        )
