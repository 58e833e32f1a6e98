"""Traces that workers leave and gates that they wait at, in files of one folder, which outlive the dead.

A worker appends a line for what it does and waits for a file to appear, so that a test always knows how far a worker
has come, and what the dead had done.

Guarantee: a line is written whole or not at all; waits end after a while that only a hang reaches.
Assumption: imported by the tests and by the workers, so it imports nothing of pytest.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aiospin.workers import Restart, WorkerDied, WorkerGroup

PATIENCE = 30.0


async def eventually(condition: Callable[[], object]) -> None:
    """Return once `condition()` is true; the loop runs meanwhile."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "the state that the test waits for never came"
        await asyncio.sleep(0.001)


def is_gone(pid: int) -> bool:
    """Whether a process has ended, reaped or not."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as status:
            return status.read().rpartition(")")[2].split()[0] in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError):
        return True


class Traces:
    """A folder of traces and gates. Any number of processes may have it open."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        self._file = self.folder / "traces"

    def leave(self, *words: object) -> None:
        """Leave a line."""
        line = " ".join(map(str, words)) + "\n"
        descriptor = os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC)
        try:
            os.write(descriptor, line.encode())
        finally:
            os.close(descriptor)

    @property
    def lines(self) -> list[str]:
        """All lines, oldest first."""
        return self._file.read_text().splitlines() if self._file.exists() else []

    def after(self, word: str) -> list[str]:
        """What stands behind a first word, in each line that begins with it."""
        return [rest for first, _, rest in (line.partition(" ") for line in self.lines) if first == word]

    def counted(self, word: str) -> Counter[str]:
        """How often each of those stands there."""
        return Counter(self.after(word))

    def open(self, gate: str) -> None:
        """Let those through who wait for this gate."""
        (self.folder / f"gate {gate}").touch()

    def shut(self, gate: str) -> None:
        """Nobody passes any more."""
        (self.folder / f"gate {gate}").unlink()

    def is_open(self, gate: str) -> bool:
        """Whether they may pass."""
        return (self.folder / f"gate {gate}").exists()

    async def seen(self, line: str, times: int = 1) -> None:
        """Return once that line stands there so often."""
        await eventually(lambda: self.lines.count(line) >= times)

    def group(self, kind: Any, n: int = 1, **options: Any) -> WorkerGroup[Any]:
        """Workers that leave their traces here. Successors come at once."""
        options.setdefault("restart", Restart(first=0.0))
        options.setdefault("start_method", "forkserver")
        return WorkerGroup(kind, n, args=(str(self.folder),), **options)


def assert_died(error: BaseException, *, rank: int, pid: int, reason: str, name: str, deliveries: int = 1) -> None:
    """Fail unless it is a WorkerDied that says all of this."""
    assert isinstance(error, WorkerDied)
    assert (error.rank, error.pid, error.reason, error.name, error.deliveries) == (rank, pid, reason, name, deliveries)
    assert f"worker {rank} (pid {pid}) {reason} while it had {name}()" in str(error)


async def outcome_of(call: asyncio.Future[Any]) -> Any:
    """What a call returned or raised."""
    await asyncio.wait([call])
    assert not call.cancelled()
    return call.exception() or call.result()
