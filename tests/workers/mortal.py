"""Hosted classes that die, hold and leave traces when a test says so, and the traces by which tests watch them.

Everything goes through files of one folder: a worker appends a line for what it does and waits for a file to appear, so
that a test always knows how far a worker has come, and what the dead had done.

Guarantee: a line is written whole or not at all; waits end after a while that only a hang reaches.
Assumption: imported by the tests and by the workers, so it imports nothing of pytest.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import resource
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

from ends import until

from aiospin.workers import Restart, WorkerDied, WorkerGroup

PATIENCE = 30.0

WAYS_TO_DIE = {
    "kill": "was killed by SIGKILL",
    "segfault": "was killed by SIGSEGV",
    "abort": "was killed by SIGABRT",
    "leave": "ended with exit code 7",
    "exit": "ended with exit code 5",
}


def die(how: str) -> None:
    """End this process."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif how == "segfault":
        ctypes.memset(8, 0, 1)
    elif how == "abort":
        os.abort()
    elif how == "leave":
        os._exit(7)
    sys.exit(5)


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


class Mortal:
    """One call after the other. Cannot be made while the gate "refuse" is open."""

    def __init__(self, folder: str) -> None:
        self.traces = Traces(folder)
        if self.traces.is_open("refuse"):
            raise ValueError("refused")
        self.traces.leave("made", os.getpid())

    def pid(self) -> int:
        return os.getpid()

    def note(self, word: str) -> str:
        """Leave a trace, and say it again."""
        self.traces.leave("ran", word)
        return word

    def tell_pid(self, word: str) -> int:
        """Leave a trace."""
        self.traces.leave("ran", word)
        return os.getpid()

    def hold(self, word: str) -> str:
        """Wait for the gate of that name."""
        self.traces.leave("began", word)
        until(lambda: self.traces.is_open(word))
        self.traces.leave("ended", word)
        return word

    def die(self, how: str, word: str = "") -> None:
        """Leave a trace and end the process."""
        self.traces.leave("ran", word or how)
        die(how)

    def die_once(self, how: str, word: str) -> str:
        """As `die`, but the second worker that tries lives."""
        self.traces.leave("ran", word)
        if self.traces.counted("ran")[word] == 1:
            die(how)
        return word

    def count(self, word: str, many: int, how: str = "") -> Iterator[int]:
        """Yield numbers, and die instead of the end if a way is given."""
        self.traces.leave("ran", word)
        yield from range(many)
        if how:
            die(how)

    def view(self, size: int) -> memoryview:
        """Bytes that travel in place."""
        return memoryview(pattern(size))

    def bear(self) -> int:
        """Fork a child that lives until it is killed."""
        child = os.fork()
        if child == 0:
            while True:
                signal.pause()
        return child

    def environment(self, *names: str) -> dict[str, str | None]:
        return {name: os.environ.get(name) for name in names}

    def cpus(self) -> list[int]:
        return sorted(os.sched_getaffinity(0))

    def close(self) -> None:
        self.traces.leave("closed", os.getpid())


class Ordered(Mortal):
    """Keeps what it was given, in order."""

    def __init__(self, folder: str) -> None:
        super().__init__(folder)
        self.taken: list[int] = []

    def take(self, number: int) -> int:
        self.taken.append(number)
        return number

    def all_taken(self) -> list[int]:
        return self.taken


class AsyncMortal:
    """Calls beside each other."""

    def __init__(self, folder: str) -> None:
        self.traces = Traces(folder)
        self.traces.leave("made", os.getpid())

    async def pid(self) -> int:
        return os.getpid()

    async def note(self, word: str) -> str:
        """Leave a trace, and say it again."""
        self.traces.leave("ran", word)
        return word

    async def tell_pid(self, word: str) -> int:
        """Leave a trace."""
        self.traces.leave("ran", word)
        return os.getpid()

    async def hold(self, word: str) -> str:
        """Wait for the gate of that name, and tell of being cancelled."""
        self.traces.leave("began", word)
        try:
            await eventually(lambda: self.traces.is_open(word))
        except asyncio.CancelledError:
            self.traces.leave("cancelled", word)
            raise
        self.traces.leave("ended", word)
        return word

    async def die(self, how: str, word: str = "") -> None:
        """Leave a trace and end the process."""
        self.traces.leave("ran", word or how)
        die(how)

    async def die_once(self, how: str, word: str) -> str:
        """As `die`, but the second worker that tries lives."""
        self.traces.leave("ran", word)
        if self.traces.counted("ran")[word] == 1:
            die(how)
        return word

    async def count(self, word: str, many: int, how: str = "") -> AsyncIterator[int]:
        """Yield numbers, and die instead of the end if a way is given."""
        self.traces.leave("ran", word)
        for number in range(many):
            yield number
        if how:
            die(how)

    async def aclose(self) -> None:
        self.traces.leave("closed", os.getpid())


class Stubborn(Mortal):
    """Has a handler for SIGTERM of its own."""

    def __init__(self, folder: str) -> None:
        super().__init__(folder)
        signal.signal(signal.SIGTERM, lambda number, _: self.traces.leave("heard", number))


class AsyncStubborn(AsyncMortal):
    """Likewise."""

    def __init__(self, folder: str) -> None:
        super().__init__(folder)
        signal.signal(signal.SIGTERM, lambda number, _: self.traces.leave("heard", number))


def pattern(size: int) -> bytes:
    """Bytes that no other content is taken for."""
    return bytes(at * 7 % 251 for at in range(256)) * (size // 256)


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
