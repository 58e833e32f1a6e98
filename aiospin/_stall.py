"""A wait that has become long tells its story, in one log line, again at doubling intervals.

Guarantee: the line is formatted at once, of plain values, and keeps nothing alive; it names roles, pids and cursors and
never payload. The record carries the same fields, typed, as `record.aiospin`, for logs that are not text.
"""

from __future__ import annotations

import logging
import os
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

_log = logging.getLogger("aiospin")
_NAMED = 8  # members of a set that a line names


class Stall:
    """The clock of one endpoint's waits: `over` when one ends, `due` now and then while one lasts.

    Waits that are over within a second need not say so: the endpoint's cursor has moved since.
    """

    def __init__(self, after: float) -> None:
        self._after = after
        self._began: float | None = None
        self._cursor = -1
        self._next = after

    def over(self) -> None:
        """The wait has ended."""
        self._began = None
        self._next = self._after

    def begin(self, cursor: int) -> None:
        """A wait stands at that cursor. Again is fine while it lasts."""
        if self._began is None or cursor != self._cursor:
            self.over()
            self._cursor, self._began = cursor, time.monotonic()

    def waited(self, cursor: int, since_ns: int = 0) -> float:
        """Seconds since the current wait, which stands at that cursor, began: at `since_ns` of CLOCK_MONOTONIC if that
        is known, else when `begin` or this was first told of it."""
        self.begin(cursor)
        assert self._began is not None
        if since_ns:
            self._began = since_ns / 1e9
        return time.monotonic() - self._began

    def due(self, waited: float) -> bool:
        """Whether a wait of that many seconds should be told now; the next time is after twice as many."""
        if waited < self._next:
            if waited < self._after:
                self._next = self._after  # a new wait
            return False
        self._next = 2 * waited
        return True


@dataclass(frozen=True)
class Peer:
    """How somebody on the other side stands."""

    role: str  # "writer", "reader_3"
    state: str
    pid: int  # 0 when unknown, or in another PID namespace
    lag: int = 0  # bytes that this reader has not released
    taken: int = 0  # of these, bytes that it has taken and somebody there still holds

    def fields(self) -> Mapping[str, str | int]:
        """What a line says of it; numbers only where there is something to say."""
        said: dict[str, str | int] = {self.role: self.state}
        rank = self.role.removeprefix("reader_")
        for name, value in ((f"{self.role}_pid", self.pid), (f"lag_{rank}", self.lag), (f"taken_{rank}", self.taken)):
            if value:
                said[name] = value
        return said


@dataclass(frozen=True)
class Waiter:
    """Who waits, and where it stands."""

    role: str  # "writer" or "reader"
    rank: int | None
    queue: str
    slot: int  # number of the message that it waits to read or to write
    cursor: int
    published: int
    held: int  # slots that this end has lent out
    views: int  # of these, slots that were left while views of them live


def tell(waiter: Waiter, peers: Iterable[Peer], waited: float) -> None:
    """Log who waits where for how long, and how each peer stands."""
    fields: dict[str, str | int | float] = {
        "role": waiter.role,
        "rank": "-" if waiter.rank is None else waiter.rank,
        "pid": os.getpid(),
        "queue": waiter.queue,
        "slot": waiter.slot,
        "cursor": waiter.cursor,
        "published": waiter.published,
        "held": waiter.held,
        "views": waiter.views,
    }
    for peer in peers:
        fields.update(peer.fields())
    _write(fields, waited)


def tell_set(members: Mapping[str, Iterable[Peer]], waited: float) -> None:
    """Log what a wait on many ends waits for: how their peers stand, and those who are not simply alive by name."""
    states = Counter(peer.state for peers in members.values() for peer in peers)
    odd = [
        f"{end}:{peer.role}={peer.state}" for end, peers in members.items() for peer in peers if peer.state != "alive"
    ]
    fields: dict[str, str | int | float] = {"role": "wait_set", "pid": os.getpid(), "members": len(members), **states}
    fields.update({f"member_{i}": text for i, text in enumerate(odd[:_NAMED])})
    _write(fields, waited)


def _write(fields: dict[str, str | int | float], waited: float) -> None:
    fields["waited_s"] = round(waited, 1)
    text = " ".join(f"{name.replace(' ', '_')}={str(value).replace(' ', '_')}" for name, value in fields.items())
    _log.warning(f"stalled: {text}", extra={"aiospin": fields})
