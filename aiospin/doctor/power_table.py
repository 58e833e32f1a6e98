"""The outcome of a contest as text of at most 80 columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from aiospin.doctor.contest import Outcome, Result
from aiospin.doctor.report import wrapped
from aiospin.doctor.stand import BARE

NAME: Final = 11
COLUMNS: Final[tuple[tuple[str, Callable[[Result], float | None]], ...]] = (
    ("watts", lambda each: each.watts),
    ("p50 us", lambda each: each.p50_us),
    ("p99 us", lambda each: each.p99_us),
    ("CPU %", lambda each: None if each.cpu_share is None else 100 * each.cpu_share),
    ("switches/s", lambda each: each.switches_per_s),
    ("instr/s", lambda each: each.instructions_per_s),
    ("cycles/s", lambda each: each.cycles_per_s),
)


def power_table(outcome: Outcome, chosen: str) -> str:
    return "\n".join(_lines(outcome, chosen))


def number(value: float | None) -> str:
    """Three digits that say something, with a unit from ten thousand on."""
    if value is None:
        return "-"
    for least, scale, unit in ((0.9995e9, 1e9, "G"), (0.9995e6, 1e6, "M"), (9999.5, 1e3, "k")):
        if value >= least:
            return f"{value / scale:.3g}{unit}"
    return f"{value:.0f}" if value >= 99.95 else f"{value:.3g}"


def _lines(outcome: Outcome, chosen: str) -> Iterator[str]:
    yield f"Ways to wait, {outcome.seconds:g} s each, for a store every ms or so; load before: {outcome.load:.2f}"
    yield from wrapped(outcome.meter or f"none: {outcome.no_meter}", "  meter: ")
    reasons = {each.uncounted for each in outcome.results if each.uncounted is not None}
    for reason in sorted(reasons):
        yield from wrapped(reason, "  no instructions and cycles: ")
    shown = [
        (heading, figure)
        for heading, figure in COLUMNS
        if any(figure(each) is not None for each in outcome.results) or (heading == "watts" and outcome.meter)
    ]
    if shown:
        yield ""
        yield f"  {'':<{NAME}}" + "".join(f"{heading:>{len(heading) + 2}}" for heading, _ in shown)
    for each in outcome.results:
        name = f"{each.mode}{' *' if each.mode == chosen else ''}"
        if each.failure is not None:
            yield from wrapped(f"failed: {each.failure}", f"  {name:<{NAME}}  ")
            continue
        cells = "".join(f"{number(figure(each)):>{len(heading) + 2}}" for heading, figure in shown)
        yield f"  {name:<{NAME}}{cells}"
    yield ""
    if outcome.meter is not None:
        yield from wrapped(f"{BARE}: nobody waits; what the machine, and this process, use by themselves.", "  ")
    yield from wrapped(
        "us: from the store in one process to the next step of the Python code that waited in another. CPU: of the one "
        "that waits. *: what aiospin waits with here.",
        "  ",
    )
