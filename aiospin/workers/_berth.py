"""A rank, whoever fills it: its worker, the calls that only that rank can take, and how often it failed."""

from __future__ import annotations

import asyncio
import collections

from aiospin import _loop
from aiospin.workers._calls import Call
from aiospin.workers._link import Link, Making


class Berth:
    """Made in the group's loop."""

    def __init__(self, rank: int, making: Making) -> None:
        self.rank = rank
        self.making = making
        self.link: Link | None = None
        self.own: collections.deque[Call] = collections.deque()  # calls for this rank that wait
        self.failures = 0  # deaths and failed starts in a row
        self.starts = 0
        self.given_up: BaseException | None = None
        self.restarting: asyncio.Task[None] | None = None
        self.planned = False  # its worker was asked to end, to make room for a successor
        self.coming = _loop.here().future()  # done when a worker is up, failed when none will come

    @property
    def up(self) -> Link | None:
        """Its worker, if that can be given calls."""
        return self.link if self.link is not None and self.link.up else None

    def expect(self) -> None:
        """A worker is about to come."""
        self.given_up = None
        if self.coming.done():
            self.coming = _loop.here().future()

    def give_up(self, error: BaseException) -> None:
        """None will come."""
        self.given_up = error
        if not self.coming.done():
            self.coming.set_exception(error)
            self.coming.exception()  # somebody may be waiting, or not


def next_of(waiting: collections.deque[Call]) -> Call | None:
    """Take the oldest that has not been given up."""
    while waiting:
        call = waiting.popleft()
        if not call.ended:
            return call
    return None
