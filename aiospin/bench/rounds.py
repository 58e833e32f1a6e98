"""The rounds: in each, every subject is asked every question once, one after the other, A B A B.

So what the machine does meanwhile falls on all alike, and a ratio taken within a round means something even where the
figures themselves do not. A case that fails is None in its round, with the reason beside it, and the rest goes on.

Guarantee: the run's files and shared memory are gone when `workplace` is left.
"""

from __future__ import annotations

import contextlib
import glob
import os
import shutil
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from aiospin.bench import floors
from aiospin.bench.cases import ask
from aiospin.bench.contract import Subject
from aiospin.bench.samples import Figures
from aiospin.bench.scenario import Effort, Point, Scenario
from aiospin.bench.stage import Failed

SHARED = "/dev/shm"


@dataclass(frozen=True)
class Pace:
    """How thorough a run is."""

    name: str
    seconds: float
    """see Effort.seconds"""
    rounds: int
    budget: float | None = None
    """no further round begins that would not end within so many seconds, at the pace of those before"""


QUICK = Pace("quick", 0.06, 3, 50.0)
FULL = Pace("full", 0.5, 5)


@dataclass(frozen=True)
class Cell:
    """What is asked of whom."""

    scenario: Scenario
    point: Point
    asked: str

    @property
    def key(self) -> tuple[str, str, str]:
        return self.scenario.name, self.point.label, self.asked


@dataclass
class Answers:
    """What a cell gave, round for round."""

    rounds: list[Figures | None] = field(default_factory=list["Figures | None"])
    curves: list[list[float]] = field(default_factory=list[list[float]])
    failure: str | None = None


Results = Mapping[tuple[str, str, str], Answers]


@contextlib.contextmanager
def workplace() -> Generator[str, None, None]:
    """A folder for the run, in memory; what peers put beside it under its name goes with it.

    Its name is short: peers make unix sockets deep inside, whose whole path has 107 bytes.
    """
    folder = tempfile.mkdtemp(prefix=f"bench-{os.getpid()}-", dir=SHARED if os.access(SHARED, os.W_OK) else None)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        for beside in glob.glob(f"{SHARED}/{glob.escape(os.path.basename(folder))}.*"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(beside)


def cells(scenarios: Sequence[Scenario], subjects: Sequence[Subject], quick: bool) -> list[Cell]:
    """Everything that is played in one round, in order: floors first, then the subjects that are there and fit."""
    with_floors = floors.missing() is None
    found: list[Cell] = []
    for scenario in scenarios:
        for point in scenario.points:
            if quick and not point.quick:
                continue
            asked = list(scenario.floors(point)) if with_floors else []
            asked += [each.name for each in subjects if scenario.unfit(each, point) is None]
            found += [Cell(scenario, point, name) for name in asked]
    return found


def played(found: Sequence[Cell]) -> list[Cell]:
    """Those that have to be played themselves; the others look at what another scenario's have given."""
    there = {cell.key for cell in found}
    return [
        cell
        for cell in found
        if cell.scenario.played_by is None or (cell.scenario.played_by, *cell.key[1:]) not in there
    ]


class Watcher(Protocol):
    """Sees a run go by."""

    def begin(self, number: int, rounds: int, cells: int) -> None: ...

    def step(self, cell: Cell) -> None:
        """The cell is played next."""

    def end(self) -> None: ...


def play(found: Sequence[Cell], pace: Pace, watcher: Watcher) -> tuple[Results, int]:
    """Plays as many rounds as the pace says; what they gave, and how many they were."""
    results = {cell.key: Answers() for cell in found}
    own = played(found)
    views = {cell.key: cell for cell in found if cell not in own}
    start = time.monotonic()
    done = 0
    with workplace() as folder:
        effort = Effort(pace.seconds, folder)
        while done < pace.rounds:
            used = time.monotonic() - start
            if pace.budget is not None and done and used + used / done > pace.budget:
                break
            watcher.begin(done + 1, pace.rounds, len(own))
            for cell in own:
                watcher.step(cell)
                _play_cell(cell, effort, results, views)
            watcher.end()
            done += 1
    return results, done


def _play_cell(
    cell: Cell, effort: Effort, results: dict[tuple[str, str, str], Answers], views: dict[tuple[str, str, str], Cell]
) -> None:
    seen = [cell, *(view for view in views.values() if (view.scenario.played_by, *view.key[1:]) == cell.key)]
    try:
        record = ask(cell.scenario, cell.asked, cell.point, effort)
    except Failed as error:
        for each in seen:
            results[each.key].rounds.append(None)
            results[each.key].failure = str(error)
        return
    for each in seen:
        answers = results[each.key]
        answers.rounds.append(each.scenario.evaluate(record, each.point))
        if shape := each.scenario.curve(record):
            answers.curves.append(shape)
