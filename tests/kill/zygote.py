"""Zygotes and their actors as the harness sees them.

Guarantee: an actor that does not answer fails the cell (`Hang`) instead of holding it up; leaving the `with` of a
zygote ends every actor of it. What an actor raises on purpose it answers; anything else arrives as `Blunder`.
Assumption: PATIENCE is only ever used up by a hang.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

PATIENCE = 30.0  # seconds

_HERE = Path(__file__).resolve().parent


class Hang(AssertionError):
    """Somebody waits who should not."""


class Blunder(AssertionError):
    """An actor failed at something that it should have done."""


class Actor:
    """A forked process that plays what it is told."""

    def __init__(self, zygote: Zygote, way: str, occurrence: int | None = None, *, traced: bool = False) -> None:
        self._zygote = zygote
        self.way = way
        self.backend = zygote.backend
        self.script, theirs = Pipe()
        self._warden: Connection[Any, Any] | None = None
        passed = [theirs.fileno()]
        if traced:
            self._warden, warden_end = Pipe()
            passed.append(warden_end.fileno())
        self._child: int = zygote.ask({"do": "fork", "way": way, "occurrence": occurrence}, passed)
        theirs.close()
        self.pid = self._child
        self.alive = True
        self._unheard: list[Any] = []
        self.unasked: list[Any] = []  # what it told without having been asked
        if traced:
            warden_end.close()
            self.pid = self.warden()[1]
            self.warden()

    def begin(self, do: str, **arguments: Any) -> None:
        """Tell it to do something; `answer` comes when it is done."""
        try:
            self.script.send((do, arguments))
        except BrokenPipeError:
            raise Blunder(f"actor {self.pid} is gone before {do}") from None

    def answer(self) -> Any:
        """What came of it."""
        while True:
            kind, value = self.hear()
            if kind == "done":
                return value
            if kind == "blunder":
                raise Blunder(f"actor {self.pid} ({self.backend}, {self.way}): {value}")
            self.unasked.append((kind, value))

    def do(self, do: str, **arguments: Any) -> Any:
        """Tell it to do something, and wait for the answer."""
        self.begin(do, **arguments)
        return self.answer()

    def has_answered(self) -> bool:
        """Whether it has something to say."""
        return bool(self._unheard) or self.script.poll(0)

    def peek(self) -> Any:
        """The next thing that it says, which it will say again."""
        said = self.hear()
        self._unheard.append(said)
        return said

    def hear(self) -> Any:
        """The next thing that it says."""
        if self._unheard:
            return self._unheard.pop()
        if not self.script.poll(PATIENCE):
            raise Hang(f"actor {self.pid} ({self.backend}, {self.way}) does not answer")
        try:
            return self.script.recv()
        except (EOFError, ConnectionResetError):
            raise Blunder(f"actor {self.pid} ({self.backend}, {self.way}) has ended") from None

    def warden(self) -> Any:
        """The next thing that its warden says."""
        assert self._warden is not None
        if not self._warden.poll(PATIENCE):
            raise Hang(f"the warden of {self.pid} has nothing to tell")
        return self._warden.recv()

    @property
    def channels(self) -> list[Connection[Any, Any]]:
        """What to wait on to hear from it or its warden."""
        return [self.script] if self._warden is None else [self.script, self._warden]

    def resume(self) -> None:
        """Let it go on from where its warden holds it."""
        assert self._warden is not None
        self._warden.send("go")

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self._zygote.ask({"do": "signal", "pid": self.pid, "number": int(number)})

    def kill(self, *, held: bool = False) -> int:
        """SIGKILL, and wait until it is reaped; returns its status as waitpid does. `held`: its warden holds it."""
        assert self.alive
        self.alive = False
        if self._warden is None:
            self.signal(signal.SIGKILL)
            status: int = self._zygote.ask({"do": "reap", "pid": self._child})
        else:
            if held:
                self._warden.send("kill")
            else:
                os.kill(self.pid, signal.SIGKILL)
            while (told := self.warden())[0] != "gone":
                continue
            status = told[1]
            self._zygote.ask({"do": "reap", "pid": self._child})
        self._close()
        return status

    def end(self) -> None:
        """Let it end by itself; killed if it is gone astray."""
        if not self.alive:
            return
        with contextlib.suppress(Blunder, BrokenPipeError):
            self.begin("end")
        self.kill()

    def _close(self) -> None:
        with contextlib.suppress(EOFError, ConnectionResetError):
            while self.script.poll(0):
                self.unasked.append(self.script.recv())
        for channel in self.channels:
            channel.close()


class Zygote:
    """A process of one backend that forks actors."""

    def __init__(self, backend: str, prefix: Sequence[str] = ()) -> None:
        self.backend = backend
        choosing = ("AIOSPIN_NO_EXTENSIONS", "AIOSPIN_REQUIRE_EXTENSIONS", "AIOSPIN_POLICY", "AIOSPIN_DIR")
        inherited = {name: value for name, value in os.environ.items() if name not in choosing}
        choice = {"AIOSPIN_NO_EXTENSIONS" if backend == "fallback" else "AIOSPIN_REQUIRE_EXTENSIONS": "1"}
        self._complaints = tempfile.TemporaryFile()
        self._read = 0
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._program = subprocess.Popen(
            [*prefix, sys.executable, "-W", "error", str(_HERE / "zygote_main.py")],
            stdin=theirs.fileno(),
            stderr=self._complaints,
            env={**inherited, **choice, "TESTS": str(_HERE.parent), "PYTHONDONTWRITEBYTECODE": "1"},
        )
        theirs.close()
        self._socket.settimeout(PATIENCE)
        self._actors: list[Actor] = []
        self.about = self.ask({"do": "about"})
        assert self.about["backend"] == backend, f"the {backend} backend is not to be had: {self.complaints()}"

    def ask(self, request: Any, descriptors: Sequence[int] = ()) -> Any:
        """One request and its answer."""
        socket.send_fds(self._socket, [json.dumps(request).encode()], descriptors)
        answer = self._socket.recv(4096)
        assert answer, f"the {self.backend} zygote is gone: {self.complaints()}"
        return json.loads(answer)

    def actor(self, way: str, occurrence: int | None = None, *, traced: bool = False) -> Actor:
        """A new process that calls the library in that way: "sync", "asyncio" or "uvloop"."""
        actor = Actor(self, way, occurrence, traced=traced)
        self._actors = [other for other in self._actors if other.alive]
        self._actors.append(actor)
        return actor

    def complaints(self) -> str:
        """What it and its actors have written to their standard error since this was last asked."""
        size = os.fstat(self._complaints.fileno()).st_size
        told = os.pread(self._complaints.fileno(), size - self._read, self._read)
        self._read = size
        return told.decode(errors="replace")

    def __enter__(self) -> Zygote:
        return self

    def __exit__(self, *error: object) -> None:
        for actor in self._actors:
            actor.end()
        self._socket.close()
        try:
            self._program.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._program.kill()
            self._program.wait()
            raise Hang(f"the {self.backend} zygote does not end") from None
        finally:
            self._complaints.close()
