"""The test's side of hosted.py: where methods that run in workers enter, stand still, and are told to go on.

Guarantee: nothing is guessed: `entered` returns when that method runs, `hear` when it told something, `left` when it or
its process has ended.
Assumption: used in one event loop, asyncio's or uvloop's.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import socket
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any

from aiospin.workers import WorkerGroup

_numbers = itertools.count()


class Player:
    """A method that is on stage."""

    def __init__(self, end: socket.socket) -> None:
        self.place = ""
        self.pid = 0
        self._socket = end
        self._heard = bytearray()

    def go(self, word: str = "") -> None:
        """Let it go on. One that has ended does not hear it."""
        with contextlib.suppress(BrokenPipeError):
            self._socket.send(f"{word}\n".encode())

    async def hear(self) -> str:
        """What it tells next. "" when it has ended."""
        while b"\n" not in self._heard:
            try:
                more = await asyncio.get_running_loop().sock_recv(self._socket, 4096)
            except ConnectionResetError:  # it ended before it read all that it was told
                return ""
            if not more:
                return ""
            self._heard += more
        said, _, self._heard = self._heard.partition(b"\n")
        return said.decode()

    async def left(self) -> list[str]:
        """Wait for its end, or its process's; what it told until then."""
        told = []
        while said := await self.hear():
            told.append(said)
        return told

    async def enter(self) -> str:
        """Where it says that it is."""
        self.place, pid = (await self.hear()).rsplit(maxsplit=1)
        self.pid = int(pid)
        return self.place

    def close(self) -> None:
        """It is told that the stage is gone."""
        self._socket.close()


class Stage:
    """`async with Stage() as stage`: its `address` is for the hosted object's constructor."""

    def __init__(self) -> None:
        self.address = f"\0aiospin-tests-{os.getpid()}-{next(_numbers)}"
        self._waiting: dict[str, asyncio.Queue[Player]] = {}
        self._players: list[Player] = []
        self._dismissed: set[str] = set()

    async def entered(self, place: str) -> Player:
        """Wait until a method enters there. Each entrance is told of once."""
        return await self._queue(place).get()

    def has_entered(self, place: str) -> bool:
        """Whether one that `entered` has not told of is there."""
        return not self._queue(place).empty()

    def dismiss(self, place: str) -> None:
        """Whoever is there or enters there goes on at once."""
        self._dismissed.add(place)
        queue = self._queue(place)
        while not queue.empty():
            queue.get_nowait().go()

    async def begun(
        self, place: str, call: Callable[[str, float], Coroutine[Any, Any, Any]], methods: int = 1
    ) -> tuple[asyncio.Task[Any], list[Player]]:
        """Make `call(place, timeout)` with ever more time, until that many methods begin before it is over."""
        timeout = 0.1
        for number in itertools.count():
            there = f"{place} {number}"
            task = asyncio.ensure_future(call(there, timeout))
            entering = asyncio.gather(*(self.entered(there) for _ in range(methods)))
            await asyncio.wait({task, entering}, return_when=asyncio.FIRST_COMPLETED)
            if entering.done():
                return task, entering.result()
            assert isinstance(task.exception(), (TimeoutError, asyncio.TimeoutError)), task
            entering.cancel()
            await asyncio.wait([entering])
            self.dismiss(there)
            timeout *= 2
        raise AssertionError

    def _queue(self, place: str) -> asyncio.Queue[Player]:
        return self._waiting.setdefault(place, asyncio.Queue())

    async def _welcome(self) -> None:
        while True:
            end, _ = await asyncio.get_running_loop().sock_accept(self._socket)
            end.setblocking(False)
            player = Player(end)
            self._players.append(player)
            if await player.enter() in self._dismissed:
                player.go()
            else:
                self._queue(player.place).put_nowait(player)

    async def __aenter__(self) -> Stage:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.setblocking(False)
        self._socket.bind(self.address)
        self._socket.listen()
        self._welcoming = asyncio.ensure_future(self._welcome())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Whoever is still on stage is told that it is gone."""
        self._welcoming.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._welcoming
        self._socket.close()
        for player in self._players:
            player.close()


async def settle(group: WorkerGroup[Any]) -> None:
    """Fail if a call stays pending. A worker answers what was given up before what comes now."""
    for _ in range(100):
        for rank in range(group.size):
            await group.call_one(rank, "pid")
        if group.statistics().pending == 0:
            return
    raise AssertionError(f"calls are left: {group.statistics()}")
