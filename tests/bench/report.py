"""Figures as tables of text: medians over the rounds, the compared figure with its extremes, ratios round by round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from .contract import Figures
from .scenarios import Scenario

Rounds = Sequence[Figures | None]


def _number(value: float) -> str:
    if abs(value) >= 10_000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"


def _ratio(rounds: Rounds, reference: Rounds, figure: str) -> str:
    """Median and extremes of this subject's figure over the reference's, within each round."""
    ratios = sorted(
        ours[figure] / theirs[figure]
        for ours, theirs in zip(rounds, reference, strict=False)
        if ours is not None and theirs is not None and theirs.get(figure)
    )
    if not ratios:
        return "-"
    return f"{_number(median(ratios))} ({_number(ratios[0])}..{_number(ratios[-1])})"


def _row(scenario: Scenario, rounds: Rounds, played: Mapping[str, tuple[Rounds, str | None]]) -> list[str]:
    good = [figures for figures in rounds if figures is not None]
    compared = sorted(figures[scenario.figure] for figures in good if scenario.figure in figures)
    cells = ["-"]
    if compared:
        cells = [f"{_number(median(compared))} ({_number(compared[0])}..{_number(compared[-1])})"]
    for reference in scenario.references:
        cells.append(_ratio(rounds, played[reference][0], scenario.figure) if reference in played else "-")
    others = dict.fromkeys(name for figures in good for name in figures if name != scenario.figure)
    cells.append(
        "  ".join(f"{name} {_number(median(figures[name] for figures in good if name in figures))}" for name in others)
    )
    return cells


def print_scenario(scenario: Scenario, played: Mapping[str, tuple[Rounds, str | None]]) -> None:
    """One scenario's table on stdout; failures below it."""
    head = ["", scenario.figure, *(f"/ {reference}" for reference in scenario.references), "more (medians)"]
    table = [head]
    for name, (rounds, _) in played.items():
        table.append([name, *_row(scenario, rounds, played)])
    widths = [max(len(row[column]) for row in table) for column in range(len(head))]
    print(f"\n{scenario.name}: {scenario.title}")
    if scenario.targets:
        print(f"  to reach: {'; '.join(scenario.targets)}")
    for row in table:
        print("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    for name, (rounds, failure) in played.items():
        if failure is not None:
            print(f"  {name}: {sum(figures is None for figures in rounds)} of {len(rounds)} rounds failed: {failure}")
