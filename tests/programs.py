"""Child processes that run a program of text: started on either backend, talked to, signalled, killed.

Guarantee: leaving the `with` kills and reaps the child. `finish()` fails unless it ended by itself, quietly.
Assumption: values in both directions are JSON. In the program `say(value)`, `hear()` and what ends.py has are there.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import aiospin

TESTS = Path(__file__).resolve().parent

_PRELUDE = """\
import json, os, sys
sys.path.append(os.environ["TESTS"])
import aiospin
from ends import RING, LARGEST, asleep, content, epoch, fill, size_of, until

def say(value=None):
    sys.stdout.write(json.dumps(value) + "\\n")
    sys.stdout.flush()

def hear():
    line = sys.stdin.readline()
    return json.loads(line) if line else None

arguments = json.loads(sys.argv[1])
"""

OTHER = "fallback" if aiospin.backend == "native" else "native"


class Program:
    """A Python process that runs `text` with `arguments` bound to what is given."""

    def __init__(
        self,
        text: str,
        arguments: Any = None,
        *,
        backend: str = aiospin.backend,
        warnings: str | None = "error",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._stderr = tempfile.TemporaryFile("w+")
        choosing = ("AIOSPIN_NO_EXTENSIONS", "AIOSPIN_REQUIRE_EXTENSIONS")
        inherited = {name: value for name, value in os.environ.items() if name not in choosing}
        no_extensions = {"AIOSPIN_NO_EXTENSIONS": "1"} if backend == "fallback" else {}
        self._last: Any = None
        self._unheard = ""
        self._process = subprocess.Popen(
            [
                sys.executable,
                *([] if warnings is None else ["-W", warnings]),
                "-c",
                _PRELUDE + textwrap.dedent(text),
                json.dumps(arguments),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            env={**inherited, **no_extensions, "TESTS": str(TESTS), **(environment or {})},
            text=True,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def hear(self) -> Any:
        """The next value that the program says."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the program ended without a word: {self.complaints()}"
        self._last = json.loads(line)
        return self._last

    def last_heard(self) -> Any:
        """The last whole value that it said before it was killed."""
        for line in self._unheard.splitlines(keepends=True):
            if line.endswith("\n"):
                self._last = json.loads(line)
        return self._last

    def say(self, value: Any = None) -> None:
        """Give the program's `hear()` a value."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(value) + "\n")
        self._process.stdin.flush()

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def complaints(self) -> str:
        """What it has written to its standard error."""
        self._stderr.seek(0)
        return self._stderr.read()

    def wait(self) -> int:
        """Its exit status, once it has ended."""
        return self._process.wait()

    def finish(self) -> None:
        """Wait for its end: successful, and with nothing on its standard error."""
        status = self.wait()
        complaints = self.complaints()
        assert (status, complaints) == (0, ""), f"exit status {status}: {complaints}"

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone. Idempotent."""
        self._process.kill()
        self._process.wait()
        if self._process.stdout is not None and not self._process.stdout.closed:
            self._unheard = self._process.stdout.read()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                try:
                    stream.close()
                except BrokenPipeError:  # what it never heard
                    continue

    def __enter__(self) -> Program:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        self._stderr.close()
