"""The tables: what happens, and how fast it goes, in Markdown; and the lines of the second one with their goals.

Guarantee: pure. A figure is the median over the rounds, with the lowest and the highest; a comparison is with theirs as
it comes (`theirs`).
Assumption: every side has as many rounds as the others.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

Rounds = Mapping[str, Mapping[str, Sequence[float]]]
"""side -> "benchmark/figure" -> one value per round"""


@dataclass(frozen=True)
class Row:
    """One line: which figure it is, how it reads, and how much of theirs ours should be."""

    benchmark: str
    figure: str
    title: str
    unit: str
    factor: float  # figure times this is what is shown
    more_is_better: bool
    goal: float | None  # ours / theirs, at least or at most

    @property
    def key(self) -> str:
        """Its place in Rounds."""
        return f"{self.benchmark}/{self.figure}"

    def meets(self, ratio: float) -> bool:
        """Whether ours / theirs is as good as the goal."""
        return self.goal is None or (ratio >= self.goal if self.more_is_better else ratio <= self.goal)


ROWS = (
    Row("ping-pong", "one-way", "small object, no gap: one way, p50", "us", 1e6, False, 1 / 8),
    Row("cadence", "one-way", "small object every 5 ms: one way, p50", "us", 1e6, False, 0.65),
    Row("cadence", "cpu", "small object every 5 ms: the reader's CPU", "% of a core", 100, False, 1 / 20),
    Row("small", "rate", "objects of 64 bytes", "1000/s", 1e-3, True, 20),
    Row("tensors", "rate", "10 MiB tensors, chunks 24 MiB x 10", "1/s", 1, True, 6),
    Row("tensors", "one-way", "10 MiB tensors, chunks 24 MiB x 10: one way, p50", "us", 1e6, False, None),
    Row("tensors-4MiB", "rate", "10 MiB tensors, chunks 4 MiB x 6", "1/s", 1, True, 6),
    Row("tensors-4MiB", "one-way", "10 MiB tensors, chunks 4 MiB x 6: one way, p50", "us", 1e6, False, None),
    Row("tensors-copied", "rate", "10 MiB tensors, each copied out by the reader", "1/s", 1, True, None),
    Row("tensors-written", "rate", "10 MiB tensors, each changed in place by the reader", "1/s", 1, True, None),
)


def number(value: float) -> str:
    """Return three digits of a value, more if it has more before the point."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def spread(values: Sequence[float], factor: float) -> str:
    """Return the median and, in parentheses, the range."""
    shown = [value * factor for value in values]
    return f"{number(statistics.median(shown))} ({number(min(shown))} to {number(max(shown))})"


def times(ratio: float, more_is_better: bool) -> str:
    """Return ours / theirs as people say it: "21x", "1/9.5", "0.62"."""
    if more_is_better:
        return f"{ratio:.3g}x"
    return f"1/{1 / ratio:.3g}" if 0 < ratio < 0.5 else f"{ratio:.2f}"


def line(cells: Iterable[str]) -> str:
    """Return one line of a Markdown table."""
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def table(head: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    return "\n".join([line(head), "|" + "---|" * len(head), *map(line, body)])


def happenings(titles: Mapping[str, str], verdicts: Mapping[str, Mapping[str, str]], heads: Mapping[str, str]) -> str:
    """Return the table of scenarios: `verdicts` is scenario -> side -> verdict."""
    body = [[titles[name], *(of_sides[side] for side in heads)] for name, of_sides in verdicts.items()]
    return table(["what happens", *heads.values()], body)


def speeds(rounds: Rounds, heads: Mapping[str, str]) -> str:
    """Return the table of figures: one column for each of `heads`, and ours compared with theirs."""
    body = []
    for row in ROWS:
        if any(row.key not in rounds[side] for side in heads):
            continue
        cells = [f"{row.title}, {row.unit}", *(spread(rounds[side][row.key], row.factor) for side in heads)]
        body.append([*cells, *comparison(row, rounds)])
    return table(["how fast", *heads.values(), "aiospin / vLLM", "goal", "met"], body)


def comparison(row: Row, rounds: Rounds) -> list[str]:
    """Return how ours compares, the goal, and whether it is met."""
    ours, theirs = (statistics.median(rounds[side][row.key]) for side in ("ours", "theirs"))
    ratio = ours / theirs
    if row.goal is None:
        return [times(ratio, row.more_is_better), "", ""]
    return [times(ratio, row.more_is_better), times(row.goal, row.more_is_better), "yes" if row.meets(ratio) else "no"]
