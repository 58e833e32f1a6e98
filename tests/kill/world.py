"""One queue and the processes around it, as a cell needs them; and what its shared words say.

Guarantee: `Sight` is read while the victim stands still, so it is what the dead leave behind.
Assumption: the harness owns the queue and plays no role on it. Survivors serve one cell after the other; what a cell
leaves open in them is found when it ends.
"""

from __future__ import annotations

import contextlib
import os
import platform
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zygote import PATIENCE, Actor, Hang, Zygote

import aiospin
from aiospin import _layout, _roles

RING = 65536
WRITER = _layout.WRITER

# System calls that wait for descriptors: poll, ppoll, epoll_wait, epoll_pwait, epoll_pwait2.
_SLEEPS = {"x86_64": {7, 271, 232, 281, 441}, "aarch64": {73, 22, 441}}.get(platform.machine(), set())

_pause = threading.Event()


def until(condition: Callable[[], object], what: str) -> None:
    """Return once the condition holds; Hang if it never does."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise Hang(f"never came: {what}")
        _pause.wait(0.0003)


def sleeps(actor: Actor) -> bool:
    """Whether the process's main thread is asleep in the kernel, waiting for descriptors."""
    state = Path(f"/proc/{actor.pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()[0]
    call = Path(f"/proc/{actor.pid}/syscall").read_text(encoding="ascii").split()[0]
    return state == "S" and call.isdigit() and int(call) in _SLEEPS


def turns(actor: Actor) -> int:
    """How often the process's main thread has gone to sleep."""
    for line in Path(f"/proc/{actor.pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("voluntary_ctxt_switches:"):
            return int(line.split()[1])
    raise LookupError(f"no count of context switches of {actor.pid}")


def watches(actor: Actor, pid: int) -> bool:
    """Whether the process has a pidfd of that pid."""
    for entry in os.listdir(f"/proc/{actor.pid}/fdinfo"):
        with contextlib.suppress(FileNotFoundError):
            if f"\nPid:\t{pid}\n" in Path(f"/proc/{actor.pid}/fdinfo/{entry}").read_text(encoding="ascii"):
                return True
    return False


@dataclass(frozen=True)
class Sight:
    """What shared memory says of one role, and of the stream, at one moment."""

    present: bool  # the seat is taken
    tenure: int  # for the how-manieth time
    locked: bool  # and by a living process
    pid: int
    published: int
    ended: bool  # the writer has closed the stream
    gates: bool  # of a reader: the writer waits for it
    joins: bool  # of a reader: it has asked for that
    released: int
    acquired: int
    start: int  # of a reader: where the writer let it in


class World:
    """A queue with two readers, and who plays there."""

    def __init__(self, crew: Crew, backing: str) -> None:
        self.crew = crew
        self._folder = tempfile.TemporaryDirectory(dir="/dev/shm", prefix="kill-") if backing == "named" else None
        where: dict[str, Any] = {} if self._folder is None else {"directory": self._folder.name, "name": "cell"}
        self.queue: aiospin.Queue[bytes] = aiospin.Queue(readers=2, capacity=RING, **where)
        segment = self.queue._segment
        assert segment is not None
        self.segment = segment
        self.handles = {"writer": self._handle(self.queue.writer())}
        for rank in range(2):
            self.handles[f"reader {rank}"] = self._handle(self.queue.reader(rank))

    def _handle(self, end: Any) -> str:
        text = str(end.handle)
        end.close()
        return text

    def close(self) -> list[str]:
        """End the queue. What is left of a named one, which should be nothing."""
        self.queue.close()
        if self._folder is None:
            return []
        left = os.listdir(self._folder.name)
        self._folder.cleanup()
        return left

    # shared words

    def sight(self, role: int) -> Sight:
        """What the words of that role say now."""
        load, readers = self.segment.mapping.load, 2
        control = _layout.control_offset(readers)
        seat = _roles.seat(self.segment, role)
        gates = joins = False
        released = acquired = start = 0
        if role != WRITER:
            lines, gate = _layout.reader_offset(readers, role - 1), _layout.gate_offset(readers, role - 1)
            stay, word = load(lines + _layout.READER_STAY), load(gate + _layout.GATE_GATE)
            gates = stay % 2 == 0 and stay == word
            joins = stay % 2 == 0 and word not in (stay, stay | 1)
            start = load(gate + _layout.GATE_START)
            released = max(load(lines + _layout.READER_RELEASED), start)
            acquired = load(lines + _layout.READER_ACQUIRED)
        return Sight(
            present=seat.present,
            tenure=seat.tenure,
            locked=_roles.holder(self.segment, role) is not None,
            pid=seat.pid,
            published=load(control + _layout.CONTROL_PUBLISHED),
            ended=bool(load(control + _layout.CONTROL_WRITER_CLOSED)),
            gates=gates,
            joins=joins,
            released=released,
            acquired=acquired,
            start=start,
        )

    def epoch(self, role: int) -> int:
        """How often the role has announced that it sleeps."""
        if role == WRITER:
            return self.segment.mapping.load(_layout.control_offset(2) + _layout.CONTROL_ROOM_EPOCH)
        return self.segment.mapping.load(_layout.reader_offset(2, role - 1) + _layout.READER_PARK_EPOCH)

    def drained(self, rank: int) -> bool:
        """Whether the reader has released all that was published, as far as it was let in."""
        sight = self.sight(1 + rank)
        return sight.released == sight.published or not sight.gates

    def settled(self, rank: int, reader: Actor) -> None:
        """Return once the reader has read all that is for it and sleeps, or has answered."""
        until(lambda: reader.has_answered() or (self.drained(rank) and sleeps(reader)), f"reader {rank} at rest")

    def looked(self, actor: Actor) -> None:
        """Return once the process, which sleeps, has woken by itself and gone to sleep again, or has answered."""
        before = turns(actor)
        until(lambda: actor.has_answered() or (turns(actor) > before + 1 and sleeps(actor)), "a look at the peers")


class Crew:
    """Zygotes of both backends, or of one, and the survivors that were forked of them."""

    def __init__(self, backends: tuple[str, ...]) -> None:
        self._stack = contextlib.ExitStack()
        self.zygotes: dict[str, Zygote] = {}
        self._survivors: dict[tuple[str, str, str], Actor] = {}
        self._holdings: dict[int, Any] = {}
        self.unrung = 0  # of the last cell: waits of survivors that neither a bell nor a pidfd has ended
        self.unheard = 0  # and looks of theirs that found a pidfd which had fired
        for backend in backends:
            self.zygotes[backend] = self._stack.enter_context(Zygote(backend))

    def survivor(self, seat: str, backend: str, way: str) -> Actor:
        """The process that plays survivors in that seat; the same one for every cell."""
        key = (seat, backend, way)
        actor = self._survivors.get(key)
        if actor is None or not actor.alive:
            actor = self._survivors[key] = self.zygotes[backend].actor(way)
            actor.do("hasten")
        return actor

    def rest(self) -> list[str]:
        """After a cell: every survivor lets go of everything. What they still have, which should be nothing."""
        left: list[str] = []
        self.unrung = self.unheard = 0
        for (seat, _, _), actor in self._survivors.items():
            if not actor.alive:
                continue
            unrung, unheard, holdings = actor.do("clear")
            self.unrung += unrung
            self.unheard += unheard
            before = self._holdings.setdefault(actor.pid, holdings)
            queues = {kind: count for kind, count in holdings.items() if "aiospin" in kind or "pidfd" in kind}
            if queues or holdings.get("pipe", 0) > before.get("pipe", 0):
                left.append(f"{seat} ({actor.backend}, {actor.way}) has {holdings}, not {before}")
        return left

    def dismiss(self) -> None:
        """After a cell that failed: nobody of it plays again."""
        for actor in self._survivors.values():
            if actor.alive:
                actor.kill()
        self._survivors.clear()
        self._holdings.clear()

    def complaints(self) -> str:
        """What any process of it has written to its standard error."""
        return "".join(zygote.complaints() for zygote in self.zygotes.values())

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()


@contextlib.contextmanager
def world(crew: Crew, backing: str) -> Iterator[World]:
    """A world that is closed at the end, whatever happened."""
    made = World(crew, backing)
    try:
        yield made
    finally:
        left = made.close()
        assert not left, f"left in the directory: {left}"
