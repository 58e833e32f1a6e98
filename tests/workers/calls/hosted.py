"""What the tests have workers host, and how a method that runs in a worker is steered: it goes on stage.

A method that takes a `place` connects to the test's `stage.Stage` there and stands still until the test says go. The
test sees it enter, hears what it tells, and sees it end, so no test has to guess how far a worker has come.

Guarantee: a worker imports nothing but the standard library for this file.
Assumption: the tests' folder is on `sys.path` in spawned children, as in the process that started them.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any


class Entrance:
    """A method's connection to the stage, without a loop."""

    def __init__(self, stage: str, place: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(stage)
        self.tell(place, os.getpid())

    def tell(self, *words: object) -> None:
        """Let the test hear of it."""
        self._socket.sendall((" ".join(map(str, words)) + "\n").encode())

    def wait(self) -> str:
        """Stand still until the test says go, with or without a word. It may say so any number of times."""
        word = bytearray()
        while not word.endswith(b"\n"):
            more = self._socket.recv(1)  # no further than this word
            if not more:
                raise EOFError("the stage is gone")
            word += more
        return word.decode().strip()

    async def wait_in_loop(self) -> str:
        """The same, and cancellable."""
        loop = asyncio.get_running_loop()
        self._socket.setblocking(False)
        word = bytearray()
        while not word.endswith(b"\n"):
            more = await loop.sock_recv(self._socket, 1)
            if not more:
                raise EOFError("the stage is gone")
            word += more
        return word.decode().strip()

    def leave(self) -> None:
        """The test hears the end of it."""
        self._socket.close()


class KnownError(Exception):
    """Imported by the tests, too, so that its type is known on both sides."""


class Plain:
    """Without a loop in the worker. `runs` lists what has begun, in order."""

    def __init__(self, stage: str = "", mark: Any = None) -> None:
        self.stage = stage
        self.mark = mark
        self.runs: list[str] = []
        self.kept: list[Any] = []

    def pid(self) -> int:
        """Of the worker."""
        return os.getpid()

    def echo(self, value: Any = None) -> Any:
        """What it was given."""
        return value

    def add(self, one: int, two: int = 0) -> int:
        """Typed, for the types of calls."""
        return one + two

    def run(self, name: str, load: Any = None) -> str:
        """Note that it ran, whatever it was given to carry."""
        self.runs.append(name)
        return name

    def what_ran(self) -> list[str]:
        """All that `run` and `at` noted."""
        return self.runs

    def at(self, place: str, result: Any = None) -> Any:
        """Stand still until the test says go. A word that is not empty is raised as KnownError."""
        self.runs.append(place)
        entrance = Entrance(self.stage, place)
        try:
            word = entrance.wait()
        finally:
            entrance.leave()
        if word:
            raise KnownError(word)
        return result

    def marked(self) -> Any:
        """What the constructor was given."""
        return self.mark

    def pid_at(self, place: str) -> int:
        """Stand still; then which worker it is."""
        self.at(place)
        return os.getpid()

    def named(self, *args: Any, **kwargs: Any) -> list[Any]:
        """Whatever it was given, by whatever names."""
        return [list(args), kwargs]

    def count(self, n: int) -> Iterator[int]:
        """0 to n - 1."""
        yield from range(n)

    def echo_each(self, values: list[Any]) -> Iterator[Any]:
        """One part for each."""
        yield from values

    def endless(self) -> Iterator[int]:
        """0, 1 and so on; what stops it is noted in `runs`."""
        try:
            yield from itertools.count()
        finally:
            self.runs.append("closed")

    def parts(self, place: str, n: int) -> Iterator[int]:
        """0 to n - 1, each after a go. Tells "closed" when it is closed early, and "through" at its end."""
        entrance = Entrance(self.stage, place)
        try:
            for number in range(n):
                word = entrance.wait()
                if word:
                    raise KnownError(word)
                yield number
            entrance.tell("through")
        except GeneratorExit:
            entrance.tell("closed")
            raise
        finally:
            entrance.leave()

    def end(self, status: int = 7) -> None:
        """Take the process down, without any ceremony."""
        os._exit(status)


class Looped:
    """In a loop in the worker."""

    def __init__(self, stage: str = "", mark: Any = None) -> None:
        self.stage = stage
        self.mark = mark
        self.runs: list[str] = []

    async def pid(self) -> int:
        """Of the worker."""
        return os.getpid()

    async def echo(self, value: Any = None) -> Any:
        """What it was given."""
        return value

    def echo_at_once(self, value: Any = None) -> Any:
        """A sync method of a class with async ones."""
        return value

    async def add(self, one: int, two: int = 0) -> int:
        """Typed, for the types of calls."""
        return one + two

    async def run(self, name: str, load: Any = None) -> str:
        """Note that it ran, whatever it was given to carry."""
        self.runs.append(name)
        return name

    async def what_ran(self) -> list[str]:
        """All that `run` and `at` noted."""
        return self.runs

    async def at(self, place: str, result: Any = None) -> Any:
        """Stand still until the test says go; tells "cancelled" when it is. A word is raised as KnownError."""
        self.runs.append(place)
        entrance = Entrance(self.stage, place)
        try:
            word = await entrance.wait_in_loop()
        except asyncio.CancelledError:
            entrance.tell("cancelled")
            raise
        finally:
            entrance.leave()
        if word:
            raise KnownError(word)
        return result

    def block_at(self, place: str) -> None:
        """Keep the whole loop standing still until the test says go."""
        entrance = Entrance(self.stage, place)
        entrance.wait()
        entrance.leave()

    async def pid_at(self, place: str) -> int:
        """Stand still; then which worker it is."""
        await self.at(place)
        return os.getpid()

    async def named(self, *args: Any, **kwargs: Any) -> list[Any]:
        """Whatever it was given, by whatever names."""
        return [list(args), kwargs]

    def count_at_once(self, n: int) -> Iterator[int]:
        """A sync generator of a class with async methods."""
        yield from range(n)

    async def echo_each(self, values: list[Any]) -> AsyncIterator[Any]:
        """One part for each."""
        for value in values:
            yield value

    async def defy(self, place: str) -> str:
        """Stand still, and when it is cancelled tell so and stand still again."""
        entrance = Entrance(self.stage, place)
        try:
            await entrance.wait_in_loop()
        except asyncio.CancelledError:
            entrance.tell("cancelled")
            await entrance.wait_in_loop()
        finally:
            entrance.leave()
        return "all the same"

    async def endless(self) -> AsyncIterator[int]:
        """0, 1 and so on, without a pause; what stops it is noted in `runs`."""
        try:
            for number in itertools.count():
                yield number
        finally:
            self.runs.append("closed")

    async def count(self, n: int) -> AsyncIterator[int]:
        """0 to n - 1."""
        for number in range(n):
            yield number

    async def parts(self, place: str, n: int) -> AsyncIterator[int]:
        """0 to n - 1, each after a go. Tells "closed" or "cancelled" when it ends early, and "through" at its end."""
        entrance = Entrance(self.stage, place)
        try:
            for number in range(n):
                word = await entrance.wait_in_loop()
                if word:
                    raise KnownError(word)
                yield number
            entrance.tell("through")
        except GeneratorExit:
            entrance.tell("closed")
            raise
        except asyncio.CancelledError:
            entrance.tell("cancelled")
            raise
        finally:
            entrance.leave()

    async def end(self, status: int = 7) -> None:
        """Take the process down, without any ceremony."""
        os._exit(status)


KINDS: Mapping[str, Any] = {"sync": Plain, "async": Looped}
