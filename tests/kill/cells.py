"""Which cells there are: the steps that dry runs find, and the combinations in which they are played.

Guarantee: the same sources give the same cells, apart from steps that depend on who was faster; a cell whose step was
not reached again is counted as such.

    seams   every named seam, for each backend of the victim, backing, and way where it is on the way of a message
    lines   every line and probe that any plot comes to, once (of files that only compute and read: every function);
            the rest rotates
    all     every step of every plot and backend, the first occurrences and the last; the rest rotates
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from matrix import BACKENDS, BACKINGS, Outcome, play
from plots import ALL_WAYS, PLOTS
from scene import ASLEEP, END, Cell
from seams import SEAMS, seams_of
from world import Crew

T = TypeVar("T")

# Files whose lines change nothing that another process could see.
PURE = {"_handle", "_header", "_host", "_layout", "_preflight", "_cgroup", "_policy", "_codec", "_deadline", "_flags"}
FIRST = 2  # occurrences of one place that are played besides the last


@dataclass(frozen=True)
class Run:
    """One dry run."""

    plot: str
    backend: str
    way: str
    backing: str


def runs(
    backends: Iterable[str],
    plots: Iterable[str] = PLOTS,
    ways: Iterable[str] = ALL_WAYS,
    backings: Iterable[str] = BACKINGS,
) -> list[Run]:
    """Every plot, in every way and backing."""
    return [Run(*combination) for combination in itertools.product(plots, backends, ways, backings)]


def list_steps(crew: Crew, run: Run) -> tuple[list[str], list[Outcome]]:
    """The steps of a plot, and what came of the runs that found them: each is a cell itself, killed at the end."""
    outcomes: list[Outcome] = []
    steps: list[str] = []
    for by in ("lines", "probes"):
        if by == "lines" or (run.backend == "native" and PLOTS[run.plot].hot):
            cell = Cell(run.plot, run.backend, run.way, run.backing, run.backend, "sync", END)
            outcomes.append(play(crew, cell, listing=by))
            steps += outcomes[-1].steps
    if PLOTS[run.plot].sleeps:
        steps.append(ASLEEP)
    return list(dict.fromkeys(steps)), outcomes


def _choose(text: Hashable, choices: list[T] | tuple[T, ...]) -> T:
    return choices[zlib.crc32(str(text).encode()) % len(choices)]


def _cell(run: Run, step: str, backends: tuple[str, ...]) -> Cell:
    """The survivors' side rotates."""
    text = (run, step)
    return Cell(
        run.plot, run.backend, run.way, run.backing, _choose(text, backends), _choose((text, "manner"), ALL_WAYS), step
    )


def _place(step: str) -> str:
    return step.rsplit("#", 1)[0]


def scene_of(step: str) -> str:
    """The place of a step, as far as places differ: a line, or a function of a file that changes nothing."""
    place = _place(step)
    return place.rsplit(":", 1)[0] if place.split(":")[0] in PURE else place


def seam_cells(found: Mapping[Run, list[str]], backends: tuple[str, ...] = BACKENDS) -> list[Cell]:
    """Every named seam, in one of the plots that come to it; those of cold code in one of the ways."""
    where: dict[Hashable, list[tuple[Run, str]]] = {}
    for run, steps in found.items():
        told: set[str] = set()
        for step in steps:
            for name in set(seams_of(run.plot, run.backend, step)) - told:
                told.add(name)
                way = "any" if SEAMS[name].probe is None else run.way
                where.setdefault((name, run.backend, way, run.backing), []).append((run, step))
    return [_cell(*_choose(key, candidates), backends) for key, candidates in where.items()]


def line_cells(found: Mapping[Run, list[str]], backends: tuple[str, ...] = BACKENDS) -> list[Cell]:
    """Every place once, in whichever plot, backend, way and backing its turn comes.

    Where there is a choice, not in a plot whose steps depend on who is faster.
    """
    where: dict[Hashable, list[tuple[Run, str]]] = {}
    for run, steps in found.items():
        for step in steps:
            where.setdefault(scene_of(step), []).append((run, step))
    cells: list[Cell] = []
    for key, candidates in where.items():
        calm = [candidate for candidate in candidates if not PLOTS[candidate[0].plot].large]
        cells.append(_cell(*_choose(key, calm or candidates), backends))
    return cells


def all_cells(found: Mapping[Run, list[str]], backends: tuple[str, ...] = BACKENDS) -> list[Cell]:
    """Every step of every plot, in whichever way and backing its turn comes."""
    where: dict[Hashable, list[tuple[Run, str]]] = {}
    for run, steps in found.items():
        last = {_place(step): step for step in steps}
        for step in steps:
            number = int(step.rsplit("#", 1)[1]) if "#" in step else 0
            if number <= FIRST:
                where.setdefault((run.plot, run.backend, step), []).append((run, step))
            elif last[_place(step)] == step:
                where.setdefault((run.plot, run.backend, _place(step), "last"), []).append((run, step))
    return [_cell(*_choose(key, candidates), backends) for key, candidates in where.items()]
