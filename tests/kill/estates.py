"""Owners killed at every step, and what they leave behind.

    create      making a queue
    close       closing it, with a writer and two readers that go on or hear of the end
    die         standing still, with the same
    unlink      taking away what a dead owner left

Guarantee: of an anonymous segment nothing is left when the last process is gone. Of a named one there is at most one
orphan, which `aiospin ls` shows and `aiospin unlink` removes; neither touches it while a process has it.
Assumption: the harness looks on through an end of its own that claims nothing, where there is a segment to look at.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import os
import sys
import tempfile
import traceback
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cells import scene_of
from matrix import BACKENDS, BACKINGS, Outcome
from plots import ALL_WAYS
from scene import END, Cell
from world import Crew, until
from zygote import Actor

import aiospin
from aiospin import _layout, cli

PREFIX = "owner: "
OLD = 3600.0  # seconds


def listings(backends: tuple[str, ...] = BACKENDS) -> list[Cell]:
    """The dry runs that list the steps: every plot, backend and backing, played to the end."""
    return [
        _cell(plot, backend, backing, END, backends)
        for plot, backend, backing in itertools.product(_ACTS, backends, BACKINGS)
        if (plot, backing) != ("unlink", "memfd")
    ]


def line_cells(found: Mapping[Cell, Sequence[str]], backends: tuple[str, ...] = BACKENDS) -> list[Cell]:
    """Every line of every plot once, in whichever backend and backing its turn comes; of pure files every function."""
    where: dict[tuple[str, str], list[tuple[Cell, str]]] = {}
    for run, steps in found.items():
        for step in steps:
            where.setdefault((run.plot, scene_of(step)), []).append((run, step))
    chosen = [candidates[zlib.crc32(str(key).encode()) % len(candidates)] for key, candidates in where.items()]
    return [_cell(run.plot, run.backend, run.backing, step, backends) for run, step in chosen]


def all_cells(found: Mapping[Cell, Sequence[str]]) -> list[Cell]:
    """Every step of every plot, backend and backing."""
    return [_cell(run.plot, run.backend, run.backing, step, BACKENDS) for run, steps in found.items() for step in steps]


def _cell(plot: str, backend: str, backing: str, step: str, backends: tuple[str, ...]) -> Cell:
    """The survivors' side rotates."""
    plot = PREFIX + plot.removeprefix(PREFIX)
    turn = zlib.crc32(f"{plot}{backend}{backing}{step}".encode())
    return Cell(plot, backend, "sync", backing, backends[turn % len(backends)], ALL_WAYS[turn // 2 % 3], step)


@dataclass
class _Place:
    """Where the segment is, and who plays."""

    crew: Crew
    cell: Cell
    folder: str
    victim: Actor
    handles: list[str] = field(default_factory=list)
    reached: str = ""
    steps: tuple[str, ...] = ()

    def other(self, seat: str) -> Actor:
        return self.crew.survivor(seat, self.cell.others, self.cell.manner)

    def where(self) -> dict[str, str]:
        return {"name": "estate", "directory": self.folder} if self.cell.backing == "named" else {}

    def names(self) -> list[str]:
        """Every name in the directory."""
        return sorted(str(path.relative_to(self.folder)) for path in Path(self.folder).rglob("*"))

    def command(self, *words: str) -> tuple[int, str]:
        """The command's exit status, and what it prints."""
        output = io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            status = cli.main([*words, "--directory", self.folder])
        return status, output.getvalue()

    def listed(self) -> list[Any]:
        """What `aiospin ls` shows."""
        status, output = self.command("ls", "--json")
        assert status == 0, output
        found: list[Any] = json.loads(output)
        return found

    def is_safe(self) -> None:
        """What is in use is not removed."""
        before = self.names()
        self.command("unlink", "--all")
        assert self.names() == before, f"unlinked under the eyes of a process: {before} became {self.names()}"

    def is_left(self) -> None:
        """At most one orphan, which can be removed."""
        assert len(os.listdir(self.folder)) <= 1, self.names()
        listed = self.listed()
        assert len(listed) == len(os.listdir(self.folder)), f"{self.names()} is shown as {listed}"
        assert all(entry["state"] in ("orphan", "unfinished") for entry in listed), listed
        for entry in listed:
            if entry["state"] == "unfinished":  # it might be in the making; later it cannot
                long_ago = os.stat(entry["path"]).st_mtime - OLD
                os.utime(entry["path"], (long_ago, long_ago))
        if listed:
            status, output = self.command("unlink", "estate")
            assert status == 0, output
        assert not self.names()


def play(crew: Crew, cell: Cell) -> Outcome:
    """Play one cell. Played to the end, it lists its steps."""
    place: _Place | None = None
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="kill-") as folder:
        try:
            place = _Place(crew, cell, folder, crew.zygotes[cell.backend].actor(cell.way))
            _ACTS[cell.plot.removeprefix(PREFIX)](place)
            left = crew.rest()
            assert not left, "; ".join(left)
            complaints = crew.complaints()
            assert not complaints, complaints
        except (AssertionError, OSError, aiospin.AiospinError):
            _, error, trace = sys.exc_info()
            crew.dismiss()
            text = "".join(traceback.format_exception(None, error, trace, limit=-3)) + crew.complaints()
            return Outcome(cell, place.reached if place else "", (), text)
    return Outcome(cell, place.reached, place.steps)


def _act(place: _Place, order: str, **arguments: Any) -> None:
    step = place.cell.step
    victim = place.victim
    victim.begin(order, watch={"by": "lines", "at": None if step == END else step}, **arguments)
    while True:
        kind, value = victim.hear()
        if kind in ("reached", "done"):
            place.reached = step if kind == "reached" else END
            place.steps = tuple(value) if kind == "done" else ()
            return
        assert kind != "blunder", value
        victim.unasked.append((kind, value))


def _create(place: _Place) -> None:
    _act(place, "create", **place.where())
    place.is_safe()
    place.victim.kill()
    place.is_left()


def _peopled(place: _Place) -> Any:
    """A queue with everybody on it, two messages read, the readers asleep. Returns the harness's own end."""
    place.victim.do("create", **place.where())
    handles = next(value for kind, value in place.victim.unasked if kind == "handles")
    place.handles = handles
    for seat, handle in zip(("writer", "reader 0", "reader 1"), handles, strict=True):
        place.other(seat).do("claim", end=seat, handle=handle)
    place.other("writer").do("write", end="writer", count=2)
    for rank in (0, 1):
        place.other(f"reader {rank}").begin("read_on", end=f"reader {rank}")
    looker = aiospin.attach(handles[1])
    load = looker._segment.mapping.load
    published = _layout.control_offset(2) + _layout.CONTROL_PUBLISHED
    released = [_layout.reader_offset(2, rank) + _layout.READER_RELEASED for rank in (0, 1)]
    until(lambda: all(load(at) == load(published) for at in released), "the readers have read")
    return looker


def _outlive(place: _Place, looker: Any) -> None:
    """The others go on, or hear of the end; nobody new can come to what has no name."""
    has_name = place.cell.backing == "named" and "estate/ring" in place.names()
    ends = looker._segment.mapping.load(_layout.control_offset(2) + _layout.CONTROL_SHUTDOWN)
    newcomer = place.crew.zygotes[place.cell.others].actor("sync")
    text = newcomer.do("try_attach", handle=place.handles[2])
    assert (text == "") == has_name, f"a newcomer was told {text!r}"
    if not has_name and place.cell.backing == "memfd":
        assert "gone" in text or "ended" in text or str(place.victim.pid) in text, text
    newcomer.end()
    writer = place.other("writer")
    told = writer.do("write_on", end="writer", until=5)
    assert told == (["closed"] if ends else ["wrote"]), f"the writer heard {told}, shutdown being {ends}"
    writer.do("close", end="writer")
    for rank in (0, 1):
        answer = place.other(f"reader {rank}").answer()
        numbers = [sequence for sequence, _, _ in answer["got"]]
        assert (numbers, answer["ended"]) == (list(range(2 if ends else 5)), ["closed"]), answer
    if has_name:
        place.is_safe()


def _close(place: _Place) -> None:
    looker = _peopled(place)
    try:
        _act(place, "abandon")
        place.is_safe()
        place.victim.kill()
        _outlive(place, looker)
    finally:
        looker.close()
    place.crew.rest()
    place.is_left()


def _die(place: _Place) -> None:
    looker = _peopled(place)
    try:
        place.reached = END
        place.victim.kill()
        _outlive(place, looker)
    finally:
        looker.close()
    place.crew.rest()
    place.is_left()


def _unlink(place: _Place) -> None:
    owner = place.crew.zygotes[place.cell.backend].actor("sync")
    owner.do("create", **place.where())
    owner.kill()
    assert len(place.listed()) == 1
    _act(place, "unlink", path=os.path.join(place.folder, "estate"))
    place.victim.kill()
    place.is_left()


_ACTS = {"create": _create, "close": _close, "die": _die, "unlink": _unlink}
