"""A process of a cell: owner, writer or reader. It does what the harness says, and tells what came of it.

Guarantee: every order is answered by `("done", value)` or `("blunder", traceback)`. A victim that reaches the step it
is to be killed at says `("reached", name)` and stands still there until it is told to go on, or dies.
Assumption: one thread; orders come one at a time.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import traceback
from collections import Counter
from collections.abc import Coroutine
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import acts
import probes
import uvloop
from line_steps import Steps


class Stage:
    """What an actor has: its ends, its way of calling, and its line to the harness."""

    def __init__(self, script: Connection[Any, Any], way: str) -> None:
        self.script = script
        self.ends: dict[str, Any] = {}
        self.kept: list[Any] = []  # slots that are held on purpose
        self.unrung = 0  # waits that neither a bell nor a pidfd has ended, but a look
        self.unheard = 0  # looks in a loop that found a pidfd which had fired
        self.tells_looks = False
        self.is_sync = way == "sync"
        self.steps: Steps | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        if way != "sync":
            self._loop = uvloop.new_event_loop() if way == "uvloop" else asyncio.SelectorEventLoop()

    def tell(self, what: str, value: Any = None) -> None:
        """Tell the harness without having been asked."""
        self.script.send((what, value))

    def step(self, name: str) -> None:
        """Come to a place of the actor's own."""
        if self.steps is not None:
            self.steps.step(f"act:{name}")

    def hold(self, name: str) -> None:
        """Stand still at a step."""
        self.script.send(("reached", name))
        assert self.script.recv() == "go"

    def run(self, part: Coroutine[Any, Any, Any]) -> Any:
        """Play a part to its end."""
        if self._loop is not None:
            return self._loop.run_until_complete(part)
        try:
            part.send(None)
        except StopIteration as end:
            return end.value
        raise AssertionError("a blocking call has suspended")


def play(script: Connection[Any, Any], way: str) -> None:
    """Do what is ordered until the end is."""
    stage = Stage(script, way)
    while True:
        try:
            order, arguments = script.recv()
        except EOFError:
            return
        if order == "end":  # at once: what it has is not closed, and nobody is left to be warned of that
            os._exit(0)
        try:
            answer = ("done", _obey(stage, order, arguments))
        except Exception:  # noqa: BLE001 - whatever it is, the harness raises it
            answer = ("blunder", traceback.format_exc())
        script.send(answer)


def _obey(stage: Stage, order: str, arguments: dict[str, Any]) -> Any:
    watch = arguments.pop("watch", None)
    part = getattr(acts, order)
    if watch is None:
        return stage.run(part(stage, **arguments))
    gc.disable()  # finalizers run where they run, every time
    if watch["by"] == "lines":
        with Steps(watch["at"], stage.hold) as stage.steps:
            stage.run(part(stage, **arguments))
        return stage.steps.names
    found = probes.loaded(Path(sys.modules["aiospin._native"].__file__ or ""))
    wanted = watch["at"]
    places = {address: name for address, name in found.items() if wanted is None or name == wanted}
    if wanted is not None and not places:
        raise LookupError(f"the extension has no probe {wanted}; it has {sorted(set(found.values()))}")
    stage.tell("armed", places)
    probes.arm(places)
    stage.run(part(stage, **arguments))
    return None


def holdings() -> dict[str, int]:
    """How many descriptors of each kind this process has."""
    kinds: Counter[str] = Counter()
    for entry in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{entry}")
        except FileNotFoundError:  # the listing's own
            continue
        kinds[target.split(":[")[0].split("/", 1)[0] if ":[" in target else target] += 1
    return dict(kinds)
