"""Figures of several rounds as tables of text: medians with extremes, and ratios taken round by round."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from .scenarios import Scenario


def number(value: float) -> str:
    """Three digits that matter."""
    if abs(value) >= 10_000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"


def spread(values: Iterable[float]) -> str:
    """Median and extremes."""
    ordered = sorted(values)
    if not ordered:
        return "-"
    if len(ordered) == 1:
        return number(ordered[0])
    return f"{number(median(ordered))} ({number(ordered[0])}..{number(ordered[-1])})"


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines whose columns stand below each other."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]


def print_scenario(
    scenario: Scenario, references: Sequence[str], rounds: Mapping[str, Sequence[Mapping[str, Any] | str]]
) -> None:
    """One scenario's table on stdout; rounds that failed are texts, and are left out."""
    table = [["", scenario.figure, *(f"/ {name}" for name in references), *scenario.beside]]
    good = {
        name: [None if isinstance(outcome, str) else outcome[scenario.name] for outcome in played]
        for name, played in rounds.items()
    }
    for name, played in good.items():
        row = [name, spread(figures[scenario.figure] for figures in played if figures is not None)]
        for reference in references:
            pairs = zip(played, good.get(reference, ()), strict=False)
            row.append(
                spread(
                    ours[scenario.figure] / theirs[scenario.figure]
                    for ours, theirs in pairs
                    if ours is not None and theirs is not None and theirs[scenario.figure]
                )
            )
        row += [spread(figures[beside] for figures in played if figures is not None) for beside in scenario.beside]
        table.append(row)
    print(f"\n{scenario.title}{f' (to reach: {scenario.target})' if scenario.target else ''}")
    print("\n".join(aligned(table)))
