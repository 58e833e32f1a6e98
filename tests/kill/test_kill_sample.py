"""A sample of the kill matrix: every plot in one way, killed at some of its seams, and at some of its other lines.

Guarantee: the same sources give the same sample; every named seam has a cell, else the harness could lose one silently.
The whole matrix is `.ci/kill`. A cell that fails prints the command that plays it again.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterator
from typing import Any

import cells
import estates
import pytest
import seams
from harness import Tally, again
from matrix import BACKINGS
from plots import ALL_WAYS, PLOTS
from scene import ASLEEP, END
from world import Crew

import aiospin

BACKENDS = ("native", "fallback") if aiospin.backend == "native" else ("fallback",)
PER_PLOT = 2  # cells, and as many of the plots of owners


@pytest.fixture(scope="module")
def crew() -> Iterator[Crew]:
    with Crew(BACKENDS) as crew:
        yield crew


@pytest.fixture(scope="module")
def tally(request: pytest.FixtureRequest) -> Iterator[Tally]:
    tally = Tally()
    yield tally
    capture: Any = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        print(f"\ncells: {tally.tried} tried, {tally.passed} passed")


@pytest.fixture(scope="module")
def found(crew: Crew, tally: Tally) -> dict[cells.Run, list[str]]:
    """The steps of every plot: this backend as the victim, ways and backings taking turns."""
    turns: Iterator[Any] = itertools.cycle(itertools.product(BACKINGS, ALL_WAYS))
    found: dict[cells.Run, list[str]] = {}
    for plot, (backing, way) in zip(PLOTS, turns, strict=False):
        run = cells.Run(plot, aiospin.backend, "sync" if PLOTS[plot].sleeps else way, backing)
        found[run], outcomes = cells.list_steps(crew, run)
        for outcome in outcomes:
            tally.count(outcome)
    return found


def _sample(key: str, choices: list[Any], count: int) -> list[Any]:
    return sorted(choices, key=lambda choice: zlib.crc32(f"{key}{choice}".encode()))[:count]


@pytest.mark.parametrize("plot", PLOTS)
def test_a_victim_killed_at_its_seams(plot: str, crew: Crew, tally: Tally, found: dict[cells.Run, list[str]]) -> None:
    (run,) = (run for run in found if run.plot == plot)
    assert found[run], f"the dry run of {plot} failed"
    chosen = _sample(plot, cells.seam_cells({run: found[run]}, BACKENDS), PER_PLOT - 1)
    chosen += _sample(plot, cells.line_cells({run: found[run]}, BACKENDS), PER_PLOT - len(chosen))
    if PLOTS[plot].sleeps:
        chosen.append(cells.seam_cells({run: [ASLEEP]}, BACKENDS)[0])
    for cell in chosen:
        outcome = again(crew, cell)
        tally.count(outcome)
        assert outcome.failure is None, f".ci/kill '{cell}'\n{outcome.failure}"
    assert not tally.doubts()


@pytest.mark.parametrize("plot", ["create", "close", "die", "unlink"])
def test_an_owner_killed_at_some_lines(plot: str, crew: Crew, tally: Tally) -> None:
    for listing in estates.listings(BACKENDS):
        if listing.plot != estates.PREFIX + plot or listing.backend != aiospin.backend:
            continue
        whole = estates.play(crew, listing)
        tally.count(whole)
        assert whole.failure is None, f".ci/kill '{listing}'\n{whole.failure}"
        steps = list(dict.fromkeys(whole.steps))
        for cell in _sample(plot, estates.line_cells({listing: steps}, BACKENDS), PER_PLOT):
            outcome = again(crew, cell)
            tally.count(outcome)
            assert outcome.failure is None, f".ci/kill '{cell}'\n{outcome.failure}"
            assert outcome.reached == cell.step != END


def test_every_named_seam_has_a_cell(found: dict[cells.Run, list[str]]) -> None:
    missing = seams.missing(aiospin.backend, [(run.plot, step) for run, steps in found.items() for step in steps])
    assert not missing
