"""Hosted classes whose methods raise what is hard to carry: `raise_(name)` raises that one of CULPRITS.

Guarantee: imported by the tests and by the workers alike, so the classes here are known on both sides.
"""

from __future__ import annotations

import asyncio
import builtins
import os
import sys
import types
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any

from hosted import KnownError


class OwnInit(Exception):
    """With arguments that are not its `args`."""

    made = 0

    def __init__(self, code: int, *, why: str) -> None:
        super().__init__(f"code {code}: {why}")
        type(self).made += 1
        self.code = code
        self.why = why


class OwnNew(Exception):
    """Cannot be made from its `args`."""

    def __new__(cls, one: int, two: int) -> OwnNew:
        return super().__new__(cls, one, two)

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"of {one} and {two}")


class BrokenText(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


class BrokenArgs(Exception):
    @property
    def args(self) -> Any:  # type: ignore[override]
        raise ValueError("no args")


class OddBase(BaseException):
    """Not an Exception."""


class Unprintable:
    def __str__(self) -> str:
        raise ValueError("no text")

    __repr__ = __str__


def _unknown() -> BaseException:
    module = types.ModuleType("only_there")
    sys.modules["only_there"] = module
    kind: type[Exception] = type("OnlyThere", (Exception,), {"__module__": "only_there"})
    vars(module)["OnlyThere"] = kind
    return kind("not known here")


def _local() -> BaseException:
    class Local(Exception):
        pass

    return Local("of a function")


def _decoding() -> BaseException:
    try:
        b"\xff".decode()
    except UnicodeDecodeError as error:
        return error
    raise AssertionError


def _opening() -> BaseException:
    try:
        open("/nowhere/at/all")
    except FileNotFoundError as error:
        return error
    raise AssertionError


def _group() -> BaseException:
    group: BaseException = vars(builtins)["ExceptionGroup"]("some", [ValueError("one"), KnownError("two")])
    return group


def _chained() -> BaseException:
    error = KnownError("outer")
    error.__cause__ = ValueError("inner")
    return error


CULPRITS: Mapping[str, Callable[[], BaseException]] = {
    "known": lambda: KnownError("known here"),
    "builtin": lambda: KeyError("key", 5),
    "unknown": _unknown,
    "local": _local,
    "own init": lambda: OwnInit(7, why="so"),
    "own new": lambda: OwnNew(1, 2),
    "broken text": lambda: BrokenText("x"),
    "broken args": lambda: BrokenArgs("x"),
    "objects as args": lambda: KnownError(object(), [1], b"bytes", None, 1.5, 3),
    "unprintable arg": lambda: KnownError(Unprintable()),
    "huge int": lambda: KnownError(10**5000),
    "infinity": lambda: KnownError(float("inf"), 2**70),
    "surrogate": lambda: KnownError("\ud800 lone"),
    "long": lambda: KnownError("x" * 1_000_000),
    "decoding": _decoding,
    "opening": _opening,
    "chained": _chained,
    "stop": lambda: StopIteration(3),
    "async stop": lambda: StopAsyncIteration(3),
    "generator exit": lambda: GeneratorExit("x"),
    "cancelled": lambda: asyncio.CancelledError("by itself"),
    "odd base": lambda: OddBase("x"),
    "group": _group,
    "system exit": lambda: SystemExit(3),
}


class Faulty:
    """Without a loop."""

    def raise_(self, culprit: str) -> None:
        """Raise it."""
        raise CULPRITS[culprit]()

    def after(self, parts: int, culprit: str) -> Iterator[int]:
        """Some parts, then that."""
        yield from range(parts)
        raise CULPRITS[culprit]()

    def give(self, what: str) -> Any:
        """Return what does not travel."""
        return {"object": object(), "set of objects": {object()}, "generator": iter([]), "huge": 2**70}[what]

    def give_parts(self) -> Iterator[Any]:
        """A part that travels, and one that does not."""
        try:
            yield 1
            yield object()
        finally:
            self.closed = True

    def was_closed(self) -> bool:
        """Whether `give_parts` came to its end."""
        return getattr(self, "closed", False)

    def add(self, one: int, two: int = 0) -> int:
        """Takes one or two."""
        return one + two

    def made(self) -> int:
        """How many OwnInit were constructed in this process."""
        return OwnInit.made

    def pid(self) -> int:
        """Of the worker."""
        return os.getpid()

    attribute = 5


class FaultyLooped(Faulty):
    """The same in a loop."""

    async def raise_(self, culprit: str) -> None:  # type: ignore[override]
        """Raise it."""
        await asyncio.sleep(0)
        raise CULPRITS[culprit]()

    async def after(self, parts: int, culprit: str) -> AsyncIterator[int]:  # type: ignore[override]
        """Some parts, then that."""
        for part in range(parts):
            yield part
        raise CULPRITS[culprit]()

    async def give(self, what: str) -> Any:
        """Return what does not travel."""
        return super().give(what)

    async def give_parts(self) -> AsyncIterator[Any]:  # type: ignore[override]
        """A part that travels, and one that does not."""
        try:
            yield 1
            yield object()
        finally:
            self.closed = True
