"""What the workers of a turmoil host: methods that tell when they begin, and then return, raise, dawdle or die.

Guarantee: a line in the ledger's file for every execution, written before anything else happens, so that the dead are
counted, too.
Assumption: imported by workers, so it imports nothing but what they need.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Iterator

from mortal import die
from traces import Traces

ACTS = ("return", "raise", "dawdle", "kill", "leave", "exit")
_pause = threading.Event()


class Refused(Exception):
    """What a call asked to be raised."""


class Player:
    """One call after the other."""

    def __init__(self, folder: str) -> None:
        self._traces = Traces(folder)

    def play(self, number: int, act: str, payload: memoryview) -> memoryview:
        """The payload, unless the act is another."""
        self._traces.leave("ran", number, os.getpid())
        if act == "raise":
            raise Refused(number)
        if act == "dawdle":
            _pause.wait(number % 7 * 1e-3)
        elif act != "return":
            die(act)
        return memoryview(bytes(payload))

    def parts(self, number: int, act: str, count: int) -> Iterator[int]:
        """Numbers from 0; the act comes in the middle."""
        self._traces.leave("ran", number, os.getpid())
        for part in range(count):
            if part == count // 2:
                if act == "raise":
                    raise Refused(number)
                if act not in ("return", "dawdle"):
                    die(act)
            yield part

    def pid(self) -> int:
        return os.getpid()


class AsyncPlayer:
    """Calls beside each other."""

    def __init__(self, folder: str) -> None:
        self._traces = Traces(folder)

    async def play(self, number: int, act: str, payload: memoryview) -> memoryview:
        """The payload, unless the act is another."""
        self._traces.leave("ran", number, os.getpid())
        if act == "raise":
            raise Refused(number)
        if act == "dawdle":
            await asyncio.sleep(number % 7 * 1e-3)
        elif act != "return":
            die(act)
        return memoryview(bytes(payload))

    async def parts(self, number: int, act: str, count: int) -> AsyncIterator[int]:
        """Numbers from 0; the act comes in the middle."""
        self._traces.leave("ran", number, os.getpid())
        for part in range(count):
            if part == count // 2:
                if act == "raise":
                    raise Refused(number)
                if act not in ("return", "dawdle"):
                    die(act)
            yield part

    async def pid(self) -> int:
        return os.getpid()
