"""What goes to one worker, in order, without making the sender wait.

Guarantee: messages are published in the order in which they were given; those that find no room wait here. Of a worker
that died it can be said which calls it had taken.
"""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Sequence
from typing import Any

from aiospin import Full, QueueClosed, QueueWriter, _loop
from aiospin.workers._calls import Call


class Outbox:
    """Made and used in the group's loop."""

    def __init__(self, writer: QueueWriter[Any]) -> None:
        self._writer = writer
        self._station = _loop.here()
        self._waiting: collections.deque[tuple[Sequence[Any], Call | None]] = collections.deque()
        self._scheduled = False
        self._sending: asyncio.Task[None] | None = None
        self._ends_at: dict[int, int] = {}  # of each call, where in the queue its message ends

    def send(self, pieces: Sequence[Any], call: Call | None = None, *, soon: bool = False) -> None:
        """Publish a message: now, or `soon`, with whatever else comes in this turn of the loop.

        A worker that is busy loses nothing by that, and is woken once for all of it, if it sleeps by then.
        """
        self._waiting.append((pieces, call))
        if not soon and len(self._waiting) == 1:
            self._send_waiting()
        elif not self._scheduled and self._sending is None:
            self._scheduled = True
            self._station.soon(self._send_scheduled)

    def taken(self, call: Call) -> bool:
        """Whether the worker had taken this call's message."""
        return self._ends_at.get(call.id, self._writer.position + 1) <= self._writer.taken(0)

    def forget(self, call: Call) -> None:
        """The call has been answered."""
        self._ends_at.pop(call.id, None)

    def close(self) -> None:
        """No more will be sent, and what waits is dropped."""
        self._waiting.clear()
        if self._sending is not None:
            self._sending.cancel()
        self._writer.close()

    def _send_scheduled(self) -> None:
        self._scheduled = False
        self._send_waiting()

    def _send_waiting(self) -> None:
        if self._sending is not None:
            return
        try:
            while self._waiting:
                pieces, call = self._waiting[0]
                self._writer.put_nowait(*pieces)
                self._sent(call)
        except Full:
            self._sending = asyncio.ensure_future(self._wait_for_room())

    async def _wait_for_room(self) -> None:
        try:
            while self._waiting:
                pieces, call = self._waiting[0]
                await self._writer.aput(*pieces)
                self._sent(call)
        except QueueClosed:
            return
        finally:
            self._sending = None

    def _sent(self, call: Call | None) -> None:
        self._waiting.popleft()
        if call is not None:
            self._ends_at[call.id] = self._writer.position
