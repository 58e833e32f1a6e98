"""Runs a side's processes, each in a process group of its own and for a bounded time.

Guarantee: when a call returns or raises, the whole group is gone, and so is what it would have left in shared memory.
Assumption: Linux; the programs of this folder, and the environment that `environment` has made.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from environment import Environment
from peers_sides import Side
from peers_verdict import Ended, cause, parse

BEGINS = 90.0
"""seconds that a process has to begin; importing torch on a busy machine is slow"""
PATIENCE = 12.0
"""seconds without news after which a call under test hangs; theirs looks again every 5 s"""
FOLDER = Path(__file__).resolve().parent


class Group:
    """One program and all that it starts."""

    def __init__(self, command: Sequence[str | Path], scratch: Path, variables: Mapping[str, str]) -> None:
        self._errors: IO[bytes] = tempfile.TemporaryFile()
        self.events: list[dict[str, Any]] = []
        self._rest = b""
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            cwd=scratch,
            env=variables,
            start_new_session=True,
        )

    def news(self, within: float) -> bool:
        """Wait for output. Returns False if it has ended. Raises TimeoutError if none came within that many seconds."""
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            if not selector.select(within):
                raise TimeoutError(f"no news within {within} s")
        chunk = os.read(self.process.stdout.fileno(), 65536)
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        self.events += filter(None, (parse(line.decode(errors="replace")) for line in lines))
        return bool(chunk)

    def wait_for(self, event: str, within: float) -> dict[str, Any]:
        """Return the next event of that name. Raises TimeoutError, or ChildProcessError if the program has ended."""
        deadline = time.monotonic() + within
        seen = len(self.events)
        while True:
            for found in self.events[seen:]:
                if found["event"] == event:
                    return found
            seen = len(self.events)
            if not self.news(max(0.0, deadline - time.monotonic())):
                raise ChildProcessError(f"it ended: {cause(self.errors())}")

    def order(self, line: str) -> None:
        """Write a line to its standard input."""
        assert self.process.stdin is not None
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

    def errors(self) -> str:
        """Return its standard error so far."""
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace")

    def end(self) -> Ended:
        """Kill what is left of the group, clear up behind it. A status of None if it had not ended by itself."""
        status = self.process.poll()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
        ended = Ended(status, self.events, self.errors())
        for name in ended.segments:
            Path("/dev/shm", name).unlink(missing_ok=True)
        self._errors.close()
        return ended


def follow(group: Group, begins: float = BEGINS, patience: float = PATIENCE) -> Ended:
    """Follow a group for as long as there is news of it: so many seconds until its test begins, and then so many."""
    try:
        with contextlib.suppress(TimeoutError, subprocess.TimeoutExpired):
            while group.news(patience if Ended(None, group.events).waited else begins):
                continue
            group.process.wait(patience)
    finally:
        ended = group.end()
    return ended


def start(where: Environment, side: Side, scratch: Path, *arguments: str) -> Group:
    """Start one side's program."""
    command: list[str | Path] = [where.python, FOLDER / "peers_play.py", *arguments]
    return Group(command, scratch, side.environment(str(where.vllm), str(scratch)))


def play(where: Environment, side: Side, scenario: str) -> Ended:
    """Play one scenario."""
    with tempfile.TemporaryDirectory(prefix="peers-") as scratch:
        return follow(start(where, side, Path(scratch), "scenario", side.name, scenario))


@contextlib.contextmanager
def benchmarks(where: Environment, sides: Sequence[Side]) -> Iterator[dict[str, Group]]:
    """Start the benchmark programs of these sides, and end them in the end."""
    groups: dict[str, Group] = {}
    with tempfile.TemporaryDirectory(prefix="peers-") as scratch:
        try:
            for side in sides:
                groups[side.name] = start(where, side, Path(scratch), "benchmarks", side.name)
            for group in groups.values():
                group.wait_for("ready", BEGINS)
            yield groups
        finally:
            for group in groups.values():
                group.end()


def measure(group: Group, benchmark: str, scale: float) -> dict[str, float]:
    """Let one side run one benchmark, and return its figures."""
    group.order(json.dumps({"benchmark": benchmark, "scale": scale}))
    figures: dict[str, float] = group.wait_for("figures", BEGINS)["figures"]
    return figures
