"""The result of a run as one document of plain values: what `--json` prints, and what tables and plots are made from.

{"format": 1, "machine": {...}, "versions": {package: version}, "pace": "quick", "rounds": 2, "seconds": 41.5,
 "ranks": [0.0, ..., 1.0], "absent": {subject: why},
 "scenarios": {name: {"title": ..., "figures": {figure: meaning}, "more_is_better": [figure, ...],
   "compared": figure or null,
   "points": [{"label": ..., "value": ..., "floor": subject or null, "unfit": {subject: why},
     "subjects": {name: {"kind": "floor" or one of contract.KINDS, "failure": null or why,
       "rounds": [{figure: number} or null, ...], "curve": [microseconds at each rank]}}}]}}}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

from aiospin.bench.contract import Subject
from aiospin.bench.floors import FLOORS
from aiospin.bench.machine import versions
from aiospin.bench.rounds import Answers, Cell, Results
from aiospin.bench.samples import RANKS
from aiospin.bench.scenario import Point, Scenario

FORMAT: Final = 1

Document = dict[str, Any]


@dataclass(frozen=True)
class Run:
    """How it was measured."""

    machine: Mapping[str, Any]
    """before it began"""
    pace: str
    rounds: int
    seconds: float


def make_document(
    cells: Sequence[Cell], results: Results, subjects: Sequence[Subject], absent: Mapping[str, str], run: Run
) -> Document:
    scenarios = dict.fromkeys(cell.scenario for cell in cells)
    kinds = {**dict.fromkeys(FLOORS, "floor"), **{each.name: each.kind for each in subjects}}
    return {
        "format": FORMAT,
        "machine": dict(run.machine),
        "versions": versions(subjects),
        "pace": run.pace,
        "rounds": run.rounds,
        "seconds": round(run.seconds, 1),
        "ranks": list(RANKS),
        "absent": dict(absent),
        "scenarios": {
            scenario.name: _scenario(
                scenario, [cell for cell in cells if cell.scenario is scenario], results, kinds, subjects
            )
            for scenario in scenarios
        },
    }


def _scenario(
    scenario: Scenario, cells: Sequence[Cell], results: Results, kinds: dict[str, str], subjects: Sequence[Subject]
) -> dict[str, Any]:
    points = dict.fromkeys(cell.point for cell in cells)
    return {
        "title": scenario.title,
        "figures": {figure.name: figure.meaning for figure in scenario.figures},
        "compared": scenario.figures[0].name if scenario.compared else None,
        "more_is_better": [figure.name for figure in scenario.figures if figure.more_is_better],
        "points": [
            {
                "label": point.label,
                "value": point.value,
                "floor": _floor(scenario, point, cells),
                "unfit": {each.name: why for each in subjects if (why := scenario.unfit(each, point)) is not None},
                "subjects": {
                    cell.asked: _subject(results[cell.key], kinds[cell.asked]) for cell in cells if cell.point is point
                },
            }
            for point in points
        ],
    }


def _floor(scenario: Scenario, point: Point, cells: Sequence[Cell]) -> str | None:
    """The one to which ratios are taken."""
    there = {cell.asked for cell in cells if cell.point is point}
    return next((floor for floor in scenario.floors(point) if floor in there), None)


def _subject(answers: Answers, kind: str) -> dict[str, Any]:
    return {
        "kind": kind,
        "failure": answers.failure,
        "rounds": [figures and {name: _short(value) for name, value in figures.items()} for figures in answers.rounds],
        "curve": [_short(median(values)) for values in zip(*answers.curves, strict=True)],
    }


def _short(value: float) -> float:
    """Six digits; more would be noise."""
    return float(f"{value:.6g}")
