"""Hosted classes that die, hold, refuse and leave traces when a test says so.

Assumption: imported by the tests and by the workers, so it imports nothing of pytest.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import resource
import signal
import sys
from collections.abc import AsyncIterator, Iterator

from ends import until
from traces import Traces, eventually

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


class Slow(Mortal):
    """Waits for the gate "go" while it is made."""

    def __init__(self, folder: str) -> None:
        traces = Traces(folder)
        traces.leave("making", os.getpid())
        until(lambda: traces.is_open("go"))
        super().__init__(folder)


class Broken:
    """Cannot be made: raises, or ends its process in the way that a gate says."""

    def __init__(self, folder: str) -> None:
        traces = Traces(folder)
        for how in WAYS_TO_DIE:
            if traces.is_open(f"end by {how}"):
                die(how)
        raise ValueError("'nothing' is broken")


class Mixed(Mortal):
    """One is made at once, one fails at the gate "fail", one waits for ever: whoever comes first chooses first."""

    def __init__(self, folder: str, last: str = "broken") -> None:
        traces = Traces(folder)
        for lot in ("quick", last):
            try:
                os.close(os.open(f"{folder}/lot {lot}", os.O_CREAT | os.O_EXCL))
                break
            except FileExistsError:
                continue
        else:
            lot = "slow"
        if lot == "slow":
            traces.leave("making", os.getpid())
            until(lambda: traces.is_open("go"))
        if lot == "broken":
            traces.leave("failing", os.getpid())
            until(lambda: traces.is_open("fail"))
            raise ValueError("'nothing' is broken")
        super().__init__(folder)


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
