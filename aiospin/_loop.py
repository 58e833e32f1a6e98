"""The only file that touches an event loop.

A Station is what one running loop has of ours: the eventfd through which the waiter thread answers, one timer that
looks after waits that sleep, and the descriptors that endpoints have put into the loop. It is made when the first wait
of a loop begins, and goes with the loop.

Guarantee: one eventfd per loop; a descriptor is removed from a loop before it is closed; a closed loop is left alone; a
forked child never calls an inherited loop, whose epoll instance it shares with the parent.
Assumption: callbacks run in the loop's thread. uvloop and asyncio are treated alike.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import os
import threading
import weakref
from collections.abc import Callable
from typing import Protocol

from aiospin import _backend
from aiospin._finalizers import quiet_at_exit

Future = asyncio.Future[bool]

_FAR = 86400.0  # seconds; a wait for longer than a day asks again


class Wait(Protocol):
    """What a Station looks after once a second, until its loop is closed."""

    def _look_after(self) -> None: ...

    def _abandon(self) -> None: ...


def wake(future: Future, result: bool = True) -> None:
    """Answer a wait that may have been cancelled or answered meanwhile, or whose loop may be closed."""
    if not future.done() and not future.get_loop().is_closed():
        future.set_result(result)


class _Round:
    """Looks after a Station's waits when its time comes. Dropped without that, it says that the loop was closed."""

    def __init__(self, station: Station) -> None:
        self._station: Callable[[], Station | None] = weakref.ref(station)

    def __call__(self) -> None:
        station = self._station()
        if station is not None:
            station._go_round()

    @quiet_at_exit
    def __del__(self) -> None:
        station = self._station()
        if station is not None:
            station._abandon()


class Station:
    """Of one loop. Use `here()` to get the running loop's."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = weakref.ref(loop)
        self._thread = threading.get_ident()
        self._tokens: dict[int, Future] = {}
        self._numbers = itertools.count()
        self._waits: dict[Wait, float] = {}  # each with how often it wants to be looked after, in seconds
        self._scheduled = False  # the loop, and nobody else, holds a _Round
        self._completion: _backend.core.Completion | None = None
        self._pid = os.getpid()

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The loop, unless it was closed, collected or left behind by a fork."""
        loop = self._loop()
        return None if loop is None or loop.is_closed() or self.inherited else loop

    @property
    def inherited(self) -> bool:
        """This is a forked child, and the loop with all its futures and timers is the parent's."""
        return self._pid != os.getpid()

    def future(self) -> Future:
        """A pending wait of this loop."""
        loop = self._loop()
        assert loop is not None
        return loop.create_future()

    def call_later(self, delay: float, callback: Callable[..., object], *arguments: object) -> asyncio.TimerHandle:
        """Call back in the loop after about that many seconds, in whole milliseconds: uvloop rounds, and to 0 too."""
        loop = self._loop()
        assert loop is not None
        return loop.call_later(math.ceil(min(delay, _FAR) * 1e3) / 1e3, callback, *arguments)

    def soon(self, callback: Callable[..., object]) -> None:
        """Call back after what the loop has to do now."""
        loop = self._loop()
        assert loop is not None
        loop.call_soon(callback)

    # the waiter thread's answers

    def watch(self, future: Future) -> tuple[_backend.core.Completion, int]:
        """A token for the waiter thread that resolves the future when it is pushed."""
        if self._completion is None:
            self._completion = _backend.core.Completion()
            self.listen(self._completion.fileno(), self._pop)
        token = next(self._numbers)
        self._tokens[token] = future
        return self._completion, token

    def forget(self, token: int) -> None:
        """The wait behind a token is over; should the token still come, nobody listens."""
        self._tokens.pop(token, None)

    def _pop(self) -> None:
        if self._completion is None:
            return
        for token in self._completion.pop():
            future = self._tokens.pop(token, None)
            if future is not None:
                wake(future)

    # descriptors

    def listen(self, fd: int, callback: Callable[[], object]) -> None:
        """Call back whenever the descriptor is readable."""
        loop = self.loop
        if loop is not None:
            loop.add_reader(fd, callback)

    def ignore(self, fd: int) -> None:
        """Take a descriptor out of the loop. In the loop's thread."""
        loop = self.loop
        if loop is not None:
            loop.remove_reader(fd)

    def on_signal(self, number: int, callback: Callable[..., object], *arguments: object) -> None:
        """Call back in the loop when a signal comes. In the main thread."""
        loop = self.loop
        if loop is not None:
            loop.add_signal_handler(number, callback, *arguments)

    def run_soon(self, callback: Callable[..., object], *arguments: object) -> None:
        """Run in the loop's thread: now if this is it or the loop stands still, else as soon as it gets there."""
        loop = self.loop
        if loop is None or not loop.is_running() or threading.get_ident() == self._thread:
            callback(*arguments)
            return
        try:
            loop.call_soon_threadsafe(callback, *arguments)
        except RuntimeError:  # closed between the question and the call
            callback(*arguments)

    # looking after those who sleep

    def begin(self, wait: Wait, period: float) -> None:
        """Look after a wait every `period` seconds until `end`."""
        self._waits[wait] = period
        if not self._scheduled:
            self._schedule()

    def end(self, wait: Wait) -> None:
        """The wait is over. The timer finds out by itself: a busy loop does not pay for it."""
        self._waits.pop(wait, None)

    def _schedule(self) -> None:
        loop = self.loop
        if loop is not None:
            loop.call_later(min(self._waits.values()), _Round(self))
            self._scheduled = True

    def _go_round(self) -> None:
        self._scheduled = False
        for wait in list(self._waits):
            wait._look_after()
        if self._waits:
            self._schedule()

    def _abandon(self) -> None:
        """If the loop was closed under its waits, they will never go on: whoever comes next must not queue behind."""
        if self.inherited or self.loop is not None:
            return
        waits, self._waits = self._waits, {}
        for wait in waits:
            wait._abandon()


_stations: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Station] = weakref.WeakKeyDictionary()


class _Latest(threading.local):
    loop: Callable[[], asyncio.AbstractEventLoop | None] = staticmethod(lambda: None)
    station: Callable[[], Station | None] = staticmethod(lambda: None)


_latest = _Latest()


def here() -> Station:
    """The Station of the running loop. RuntimeError when none runs in this thread."""
    loop = asyncio.get_running_loop()
    station = _latest.station()
    if station is not None and _latest.loop() is loop:
        return station  # a loop that runs is not closed, and a forked child has forgotten the latest
    station = _stations.get(loop)
    if station is None or station.loop is not loop:
        station = _stations[loop] = Station(loop)
    _latest.loop, _latest.station = weakref.ref(loop), weakref.ref(station)
    return station


def is_running() -> bool:
    """Whether this thread runs an event loop."""
    return asyncio._get_running_loop() is not None


def _forget_in_child() -> None:
    _stations.clear()
    _latest.station = lambda: None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)
