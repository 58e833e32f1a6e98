"""What goes to one worker, in order, without making the sender wait.

Guarantee: messages are published in the order in which they were given; those that find no room wait here. Of a worker
that died it can be said which calls it had taken.
"""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Sequence
from typing import Any, Final

from aiospin import Full, Queue, QueueClosed, _layout, _loop
from aiospin.workers._calls import Call

_AT_ONCE: Final = 16  # messages that may wait for the end of the turn; the worker could be at work on them
_JOINED: Final = 4096  # bytes of a message up to which its pieces are joined, to go with others at once


class Outbox:
    """Made and used in the group's loop."""

    def __init__(self, queue: Queue[Any]) -> None:
        self._writer = queue.writer()
        self._writer.claim()
        self._largest = queue.capacity // 2  # of a message that is sent from here; larger ones may go in pieces
        self._station = _loop.here()
        self._waiting: collections.deque[tuple[Sequence[Any], int, Call | None]] = collections.deque()
        self._scheduled = False
        self._finishing = False
        self._sending: asyncio.Task[None] | None = None
        self._ends_at: dict[int, int] = {}  # of each call, where in the queue its message ends

    def send(self, pieces: Sequence[Any], call: Call | None = None, *, soon: bool = False) -> None:
        """Publish a message: now, or `soon`, with whatever else comes in this turn of the loop.

        A worker that is busy loses nothing by that, and is woken once for all of it, if it sleeps by then.
        """
        size = sum(map(len, pieces))
        if len(pieces) > 1 and size <= _JOINED:
            pieces = [b"".join(pieces)]
        self._waiting.append((pieces, size, call))
        if (not soon and len(self._waiting) == 1) or len(self._waiting) >= _AT_ONCE:
            self._send_waiting()
        elif not self._scheduled and self._sending is None:
            self._scheduled = True
            self._station.soon(self._send_scheduled)

    def taken(self, call: Call) -> bool:
        """Whether the worker had taken this call's message. Asked before `close`."""
        ends_at = self._ends_at.get(call.id)
        return ends_at is not None and ends_at <= self._writer.taken(0)

    def forget(self, call: Call) -> None:
        """The call has been answered."""
        self._ends_at.pop(call.id, None)

    def finish(self) -> None:
        """Nothing more will come; the worker is told so when it has been sent all that waits."""
        self._finishing = True
        self._send_waiting()

    def close(self) -> None:
        """What waits is dropped."""
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
                if not self._send_some():
                    self._sending = asyncio.ensure_future(self._wait_for_room())
                    return
        except QueueClosed:
            self._waiting.clear()
        self._end_if_finished()

    def _send_some(self) -> bool:
        """Send what waits, or the first part of it. False when there is no room for the first."""
        pieces, size, _ = self._waiting[0]
        if size > self._largest:
            return False  # it passes through in fragments, as the worker takes them
        if len(pieces) > 1:
            try:
                self._writer.put_nowait(*pieces)
            except Full:
                return False
            self._sent(self._writer.position)
            return True
        alike: list[Any] = []
        for pieces, size, _ in self._waiting:
            if len(pieces) > 1 or size > self._largest:
                break
            alike.append(pieces[0])
        end = self._writer.position
        count = self._writer.put_many_nowait(alike)
        for payload in alike[:count]:
            end += _layout.stride(len(payload))
            self._sent(end)
        return count > 0

    async def _wait_for_room(self) -> None:
        try:
            while self._waiting:
                pieces, _, _ = self._waiting[0]
                await self._writer.aput(*pieces)
                self._sent(self._writer.position)
        except QueueClosed:
            return
        finally:
            self._sending = None
        self._end_if_finished()

    def _sent(self, end: int) -> None:
        _, _, call = self._waiting.popleft()
        if call is not None:
            self._ends_at[call.id] = end

    def _end_if_finished(self) -> None:
        if self._finishing and not self._waiting:
            self._writer.close()
