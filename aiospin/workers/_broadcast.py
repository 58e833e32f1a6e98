"""Calls for everybody, published once to all workers and announced to each through its own queue.

A worker looks into the broadcast queue only when an announcement tells it to, so a worker that is busy with something
else delays nobody but those who call everybody.

Guarantee: calls for everybody begin in the same order on every worker, which collective operations need.
"""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Sequence
from typing import Any, Protocol

from aiospin import Full, Queue, QueueClosed, QueueReader
from aiospin.workers._calls import Call
from aiospin.workers._link import Link


class Ranks(Protocol):
    """Whom calls go to."""

    def everybody(self) -> list[Link] | None:
        """The workers of all ranks, if each can take an announcement now."""

    def announce(self, calls: Sequence[Call], links: Sequence[Link]) -> None:
        """These were published while those were there."""

    def send_each(self, calls: Sequence[Call]) -> None:
        """Send each to its rank alone."""


class Broadcasts:
    """The broadcast queue and the calls that wait for room in it. Made in the group's loop."""

    def __init__(self, size: int, capacity: int | str, policy: Any, ranks: Ranks) -> None:
        # A death is noticed by the process's end; here it must not surface in somebody's call.
        self._queue: Queue[Any] = Queue(readers=size, capacity=capacity, policy=policy, on_peer_death="wait")
        self._writer = self._queue.writer()
        self._writer.claim()
        self._ranks = ranks
        self._pending: collections.deque[Sequence[Call]] = collections.deque()
        self._sending: asyncio.Task[None] | None = None

    def reader(self, rank: int) -> QueueReader[Any]:
        """The end of a worker that is being started."""
        return self._queue.reader(rank)

    def drop(self, rank: int) -> None:
        """A worker is gone; its successor begins with what is published after it came."""
        self._writer.drop_reader(rank)

    def send(self, calls: Sequence[Call]) -> None:
        """Send one call to each rank, now or as soon as there is room."""
        if self._sending is None and self._try(calls):
            return
        self._pending.append(calls)
        if self._sending is None:
            self._sending = asyncio.ensure_future(self._send_all())

    def take_back(self) -> list[Call]:
        """The calls that wait for room. They are not published any more, but for the first, which may be."""
        waiting = [call for calls in self._pending for call in calls if not call.ended]
        self._pending.clear()
        return waiting

    def close(self) -> None:
        """Let go of the queue. The workers must be gone."""
        if self._sending is not None:
            self._sending.cancel()
        self._writer.close()
        self._queue.close()

    def _try(self, calls: Sequence[Call]) -> bool:
        if all(call.ended for call in calls):
            return True
        links = self._ranks.everybody()
        pieces = _pieces_of(calls)
        # A message that needs most of the ring would have to be taken before it is announced.
        if links is None or sum(map(len, pieces)) > self._queue.capacity // 2:
            self._ranks.send_each(calls)
            return True
        try:
            self._writer.put_nowait(*pieces)
        except Full:
            return False
        self._ranks.announce(calls, links)
        return True

    async def _send_all(self) -> None:
        try:
            while self._pending:
                calls = self._pending[0]
                if not self._try(calls):
                    await self._wait_for_room(calls)
                if self._pending and self._pending[0] is calls:
                    self._pending.popleft()
        except QueueClosed:
            return
        finally:
            self._sending = None

    async def _wait_for_room(self, calls: Sequence[Call]) -> None:
        links = self._ranks.everybody()
        if links is None:
            self._ranks.send_each(calls)
        else:
            await self._writer.aput(*_pieces_of(calls))
            self._ranks.announce(calls, links)


def _pieces_of(calls: Sequence[Call]) -> Sequence[Any]:
    """The message that is the same for all; of a call that has ended it is gone."""
    return next(call for call in calls if not call.ended).pieces()
