"""A cell on its way: who plays, where the victim is stopped, and how it is killed there.

Guarantee: `act` returns when the victim has said that it stands at its step, or has come to the end of its act; never
because time has passed. Steps by name:

    end              the act was played to its end
    asleep           the kernel says that the victim sleeps, and its epoch that it has announced it
    probe:NAME#n     the n-th time at a tracepoint of the extension
    anything else    a line of the library, or a place of the act (line_steps.py)
"""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from typing import Any

from world import WRITER, Crew, World, sleeps, until
from zygote import PATIENCE, Actor, Blunder, Hang

END, ASLEEP = "end", "asleep"


@dataclass(frozen=True)
class Cell:
    """One combination. Its text names it, and plays it again."""

    plot: str
    backend: str  # of the victim
    way: str  # in which the victim calls
    backing: str
    others: str  # backend of the survivors
    manner: str  # in which the survivors call
    step: str

    def __str__(self) -> str:
        return "/".join((self.plot, self.backend, self.way, self.backing, self.others, self.manner, self.step))

    @classmethod
    def parse(cls, text: str) -> Cell:
        """From its text. A step may contain slashes."""
        return cls(*text.split("/", 6))

    @property
    def by(self) -> str:
        """What stops the victim."""
        if self.step == ASLEEP:
            return "sleep"
        return "probes" if self.step.startswith("probe:") else "lines"


@dataclass
class Scene:
    """The world of a cell, and its players. A plot fills it in."""

    cell: Cell
    world: World
    crew: Crew
    listing: str | None = None  # "lines" or "probes": note every step of that kind, and play to the end
    others: dict[str, Actor] = field(default_factory=dict)
    extras: list[Actor] = field(default_factory=list)  # besides the victim, processes of this cell only
    reading: set[int] = field(default_factory=set)  # ranks whose `read_on` is under way
    got: dict[int, list[Any]] = field(default_factory=lambda: {0: [], 1: []})  # by survivors of that rank
    mourned: int = 0  # the tenure of the victim's role whose end the survivors were told of
    notices: list[tuple[str, str]] = field(default_factory=list)  # deaths told: what was there to tell, and what did
    writing: bool = False  # the survivor's `write_on` is under way
    provoke: Callable[[], bool] | None = None  # called until it says that it is done
    steps: list[str] = field(default_factory=list)
    reached: str | None = None
    held: bool = False
    _victim: Actor | None = None

    @property
    def victim(self) -> Actor:
        """The process that will be killed."""
        if self._victim is None:
            by = self.listing or self.cell.by
            occurrence = None
            if by == "probes" and self.listing is None:
                occurrence = int(self.cell.step.split("#")[1])
            zygote = self.crew.zygotes[self.cell.backend]
            self._victim = zygote.actor(self.cell.way, occurrence, traced=by == "probes")
        return self._victim

    def other(self, seat: str) -> Actor:
        """The survivor of that seat: "writer", "reader 0", "reader 1", "spare"."""
        if seat not in self.others:
            self.others[seat] = self.crew.survivor(seat, self.cell.others, self.cell.manner)
        return self.others[seat]

    def extra(self) -> Actor:
        """One more process, of the victim's kind."""
        actor = self.crew.zygotes[self.cell.backend].actor(self.cell.way)
        self.extras.append(actor)
        return actor

    def claim(self, actor: Actor, end: str) -> Any:
        """Let it claim a role of the world."""
        return actor.do("claim", end=end, handle=self.world.handles[end])

    # survivors

    def read_on(self, rank: int) -> None:
        """Let the survivor of that rank read until something ends it. Does nothing if it does."""
        if rank not in self.reading:
            self.other(f"reader {rank}").begin("read_on", end=f"reader {rank}")
            self.reading.add(rank)

    def heard(self, rank: int) -> list[Any]:
        """What ended the reading of that rank."""
        answer = self.other(f"reader {rank}").answer()
        self.reading.discard(rank)
        self.got[rank] += answer["got"]
        ended: list[Any] = answer["ended"]
        return ended

    def write_on(self, total: int, **options: Any) -> None:
        """Let the writing survivor put messages until there were so many. Does nothing if it does."""
        if not self.writing:
            self.other("writer").begin("write_on", end="writer", until=total, **options)
            self.writing = True

    def wrote(self) -> list[Any]:
        """What ended that."""
        answer: list[Any] = self.other("writer").answer()
        self.writing = False
        return answer

    def writer_rests(self, since: int) -> None:
        """Return once the writing survivor sleeps for want of room, or has answered."""
        writer = self.other("writer")
        until(
            lambda: writer.has_answered() or (self.world.epoch(WRITER) > since and sleeps(writer)), "the writer at rest"
        )

    # the act

    def act(self, order: str, role: int, **arguments: Any) -> None:
        """Let the victim act, up to its step or to the end."""
        by = self.listing or self.cell.by
        at = None if self.listing else self.cell.step.removeprefix("probe:").split("#")[0]
        if by == "sleep" or (by == "lines" and self.cell.step == END and self.listing is None):
            watch = None
        elif by == "probes":
            watch = {"by": "probes", "at": at}
        else:
            watch = {"by": "lines", "at": None if self.listing else self.cell.step}
        epoch = self.world.epoch(role)
        self.victim.begin(order, watch=watch, **arguments)
        if by == "sleep":
            until(lambda: self.world.epoch(role) > epoch and sleeps(self.victim), "the victim asleep")
            self.reached = ASLEEP
            return
        self._follow()

    def _follow(self) -> None:
        deadline = time.monotonic() + PATIENCE
        places: dict[int, str] = {}
        passed: list[int] = []
        while True:
            if self.provoke is not None and self.provoke():
                self.provoke = None
            spoken = wait(self.victim.channels, 0.0005 if self.provoke is not None else 1.0)
            if not spoken:
                if time.monotonic() > deadline:
                    raise Hang(f"the victim neither reaches its step nor ends; it told {self.victim.unasked}")
                continue
            kind, value = (self.victim.hear if self.victim.script in spoken else self.victim.warden)()
            if kind == "reached":
                self.reached = value if isinstance(value, str) else self.cell.step
                self.held = not isinstance(value, str)
                return
            if kind == "done":
                self.reached = END
                while self.listing == "probes" and self.victim.channels[1].poll(0):  # sent before the victim went on
                    passed.append(self.victim.warden()[1])
                self.steps = value or self._named(passed, places)
                return
            if kind == "blunder":
                raise Blunder(f"the victim: {value}")
            if kind == "armed":
                places = value
            elif kind == "passed":
                passed.append(value)
            elif kind == "gone":
                raise Blunder(f"the victim ended by itself, with status {value}")
            else:
                self.victim.unasked.append((kind, value))

    def _named(self, passed: list[int], places: dict[int, str]) -> list[str]:
        seen: Counter[str] = Counter()
        names: list[str] = []
        for address in passed:
            seen[places[address]] += 1
            names.append(f"probe:{places[address]}#{seen[places[address]]}")
        return names

    def kill(self) -> None:
        """SIGKILL for the victim where it stands. It is gone and reaped when this returns."""
        status = self.victim.kill(held=self.held)
        assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, f"the victim ended with {status}"

    def told(self, what: str) -> list[Any]:
        """What the victim has told of that kind before it died."""
        return [value for kind, value in self.victim.unasked if kind == what]
