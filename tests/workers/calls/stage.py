"""The test's side of hosted.py: where methods that run in workers enter, stand still, and are told to go on.

Guarantee: nothing is guessed: `entered` returns when that method runs, `hear` when it told something, `left` when it or
its process has ended.
Assumption: used in one event loop, asyncio's or uvloop's.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
from types import TracebackType
from typing import Any

from aiospin.workers import WorkerGroup

_numbers = itertools.count()


class Player:
    """A method that is on stage."""

    def __init__(self, place: str, pid: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.place = place
        self.pid = pid
        self._reader = reader
        self._writer = writer

    def go(self, word: str = "") -> None:
        """Let it go on."""
        self._writer.write(f"{word}\n".encode())

    async def hear(self) -> str:
        """What it tells next. "" when it has ended."""
        try:
            return (await self._reader.readline()).decode().strip()
        except ConnectionResetError:  # it ended before it read all that it was told
            return ""

    async def left(self) -> list[str]:
        """Wait for its end, or its process's; what it told until then."""
        told = []
        while said := await self.hear():
            told.append(said)
        return told

    def close(self) -> None:
        self._writer.close()


class Stage:
    """`async with Stage() as stage`: its `address` is for the hosted object's constructor."""

    def __init__(self) -> None:
        self.address = f"\0aiospin-tests-{os.getpid()}-{next(_numbers)}"
        self._waiting: dict[str, asyncio.Queue[Player]] = {}
        self._players: list[Player] = []

    async def entered(self, place: str) -> Player:
        """Wait until a method enters there. Each entrance is told of once."""
        return await self._queue(place).get()

    def has_entered(self, place: str) -> bool:
        """Whether one that `entered` has not told of is there."""
        return not self._queue(place).empty()

    def _queue(self, place: str) -> asyncio.Queue[Player]:
        return self._waiting.setdefault(place, asyncio.Queue())

    async def _enter(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        place, pid = (await reader.readline()).decode().rsplit(maxsplit=1)
        player = Player(place, int(pid), reader, writer)
        self._players.append(player)
        self._queue(place).put_nowait(player)

    async def __aenter__(self) -> Stage:
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(self.address)
        self._server = await asyncio.start_unix_server(self._enter, sock=listening)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Whoever is still on stage is told that it is gone."""
        self._server.close()
        for player in self._players:
            player.close()
        await self._server.wait_closed()


async def settle(group: WorkerGroup[Any]) -> None:
    """Fail if a call stays pending. A worker answers what was given up before what comes now."""
    for _ in range(100):
        for rank in range(group.size):
            await group.call_one(rank, "pid")
        if group.statistics().pending == 0:
            return
    raise AssertionError(f"calls are left: {group.statistics()}")
