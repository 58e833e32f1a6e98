"""Plays cells, and says which there are.

Guarantee: a cell either comes to its step and passes every check, or fails with a text that names it. After each cell
nothing of it is left: no process, no descriptor of a survivor, no name in the directory.
"""

from __future__ import annotations

import sys
import traceback
from dataclasses import dataclass

from judge import judge
from plots import PLOTS
from scene import Cell, Scene
from world import Crew, world

BACKENDS = ("native", "fallback")
BACKINGS = ("memfd", "named")


@dataclass(frozen=True)
class Outcome:
    """What came of a cell."""

    cell: Cell
    reached: str
    steps: tuple[str, ...]
    failure: str | None = None
    notices: tuple[tuple[str, str], ...] = ()  # deaths told: what the survivor had to tell it, and what did
    unrung: int = 0  # waits of survivors that neither a bell nor a pidfd has ended
    unheard: int = 0  # looks of theirs that found a pidfd which had fired, and had not woken them


def play(crew: Crew, cell: Cell, listing: str | None = None) -> Outcome:
    """Play one cell. With `listing` the victim plays to the end, and its steps are listed."""
    plot = PLOTS[cell.plot]
    scene = None
    try:
        with world(crew, cell.backing) as made:
            scene = Scene(cell, made, crew, listing)
            plot.before(scene)
            end = "writer" if plot.role == 0 else "reader 0"
            scene.act(plot.order, plot.role, end=end, **plot.arguments(scene))
            judge(scene, plot)
            for actor in scene.extras:
                if actor.alive:
                    actor.end()
            left = crew.rest()
            assert not left, "; ".join(left)
        complaints = crew.complaints()
        assert not complaints, complaints
    except (AssertionError, OSError):
        _, error, where = sys.exc_info()
        crew.dismiss()
        text = "".join(traceback.format_exception(None, error, where, limit=-3)) + crew.complaints()
        return Outcome(cell, (scene.reached if scene else None) or "", (), text)
    return Outcome(cell, scene.reached or "", tuple(scene.steps), None, tuple(scene.notices), crew.unrung, crew.unheard)
