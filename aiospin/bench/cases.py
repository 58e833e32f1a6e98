"""One case: one subject, or one floor, at one point of one scenario, in a leader's process."""

from __future__ import annotations

import math
from typing import Any

from aiospin.bench import floors
from aiospin.bench.scenario import Effort, Point, Record, Scenario
from aiospin.bench.scenarios import SCENARIOS
from aiospin.bench.stage import lead
from aiospin.bench.subjects import load_subjects

EVALUATED = 3.0
"""how many times its share of seconds a case may well take, beside PATIENCE"""
PATIENCE = 20.0


def play(scenario: str, asked: str, point: Point, effort: Effort) -> dict[str, Any]:
    """The record of a subject, or of a floor, in this process."""
    question = SCENARIOS[scenario]
    if asked in floors.FLOORS:
        return dict(question.play_floor(asked, point, effort))
    return dict(question.play(load_subjects()[asked], point, effort))


def ask(scenario: Scenario, asked: str, point: Point, effort: Effort) -> Record:
    """The same in a leader's process. Raises stage.Failed."""
    limit = math.ceil(PATIENCE + EVALUATED * effort.seconds)
    record: Record = lead(f"{effort.folder}/stderr", limit, play, scenario.name, asked, point, effort)
    return record
