"""The Python half of an awaited call: how an operation of a reader or writer sleeps in an event loop, and is woken.

The backend attempts; when an attempt finds nothing it asks `_suspend` for a future, and attempts again when the future
is done. A wake-up is only a hint, so whatever becomes of it (cancelled, late, double) nothing is lost.

    stage      who watches                      what wakes
    monitor    the waiter thread, for a while   a token through the Station's eventfd
    park       nobody                           the bell, which is in the loop: the peer wakes the loop directly

Guarantee: operations of one endpoint are served first in, first out; a cancelled one leaves no gap.
Assumption: runs in the loop's thread, but for `_kick`.
"""

from __future__ import annotations

import asyncio
import functools
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, Protocol

from aiospin import _loop, _seams
from aiospin._errors import ReaderBusy, WriterBusy

LOOK_AFTER = 1.0  # seconds between two looks at a sleeping wait: liveness, and whatever a bell failed to say
LOOK_AFTER_UNBARRIERED = 0.01  # where the kernel refuses the barrier that plain stores of a peer need


class Sleeper(_loop.Wait, Protocol):
    """What a Line needs of its endpoint: what it waits for, and whom it listens to."""

    _own_bell: int
    _look_after_period: float
    _in_sets: bool

    # The loop that has the bell, set here. The backend may then park a wait by itself, without `suspend` and `leave`.
    _home: Any

    @property
    def _in_vain(self) -> bool: ...
    def _wake_parked(self) -> bool: ...

    @property
    def rank(self) -> int | None: ...
    @property
    def role_name(self) -> str: ...
    def _may_attempt(self) -> bool: ...
    def _announce(self) -> bool: ...
    def _horizon_us(self) -> float: ...
    def _monitor(self, completion: Any, token: int, horizon_us: float, /) -> None: ...
    def _unmonitor(self) -> None: ...
    def _peer_fds(self) -> list[int]: ...
    def _has_new_peers(self) -> bool: ...
    def _touch_sets(self) -> None: ...
    def _bell_callback(self) -> Callable[[], None]: ...
    def _on_peer(self) -> None: ...


class Line:
    """The operations that wait on one endpoint, oldest first, and what the endpoint has in their loop.

    It does not refer to its endpoint, so that one that nobody has any more goes at once.
    """

    def __init__(self) -> None:
        self._waiting: dict[Any, _loop.Future] = {}
        self._timers: dict[Any, asyncio.TimerHandle] = {}
        self._station: _loop.Station | None = None
        self._thread = 0
        self._descriptors: tuple[int, ...] = ()
        self._token: int | None = None

    def suspend(self, endpoint: Sleeper, operation: Any, remaining: float | None) -> _loop.Future:
        """A future that is True when `operation` should attempt again, False when its time is over."""
        station = _loop.here()
        if station is not self._station:
            self._move(endpoint, station)
        future = station.future()
        if _seams.stage is not None:
            future.add_done_callback(functools.partial(_notified, operation))
        again = endpoint._in_vain or operation in self._waiting
        self._waiting[operation] = future
        if remaining is not None and operation not in self._timers:
            self._expire_in(station, remaining, operation, time.monotonic() + remaining)
        station.begin(endpoint, endpoint._look_after_period)
        # Notes who the peers are: before they are listened to, so that nobody who comes in between is overlooked.
        endpoint._home = None if endpoint._in_sets else station.loop
        if self._is_head(operation) and endpoint._may_attempt():
            if again or endpoint._has_new_peers():  # woken for nothing: perhaps a peer went, which rings too
                self.listen_to_peers(endpoint)
            self._arm(endpoint, station, operation, future)
        return future

    @property
    def waits(self) -> bool:
        """Somebody does."""
        return bool(self._waiting)

    def leave(self, endpoint: Sleeper, operation: Any) -> None:
        """`operation` has ended; the next one has its turn."""
        was_head = self._is_head(operation)
        self._waiting.pop(operation, None)
        if self._station is not None and self._station.inherited:
            return
        if self._timers:
            timer = self._timers.pop(operation, None)
            if timer is not None:
                timer.cancel()
        if was_head and self._token is not None:
            self._disarm(endpoint)
        if self._waiting:
            self.kick()
        elif self._station is not None and endpoint._home is None:
            self._station.end(endpoint)  # else the next round does it, if no wait has begun by then

    def kick(self) -> None:
        """Let the operation at the head attempt again. Any thread."""
        future = next(iter(self._waiting.values()), None)
        if future is None or self._station is None or self._station.inherited:
            return
        if threading.get_ident() == self._thread:
            _loop.wake(future)
        else:
            self._station.run_soon(_loop.wake, future)

    def wake_all(self) -> None:
        """Let every operation find out that the endpoint has ended. Any thread."""
        if self._station is None or self._station.inherited:
            return
        for future in list(self._waiting.values()):
            self._station.run_soon(_loop.wake, future)

    def abandon(self) -> None:
        """The loop was closed under its waits. They end as if they were cancelled, though nobody is told."""
        for operation in list(self._waiting):
            operation.close()

    def close(self, endpoint: Sleeper) -> None:
        """Take everything out of the loop. In the loop's thread, or when the loop stands still."""
        self._disarm(endpoint)
        endpoint._home = None
        station, self._station = self._station, None
        if station is not None:
            station.end(endpoint)
            for fd in self._descriptors:
                station.ignore(fd)
        self._descriptors = ()

    @property
    def station(self) -> _loop.Station | None:
        """Where the descriptors are, if anywhere."""
        return self._station

    def listen_to_peers(self, endpoint: Sleeper) -> None:
        """Bring the loop's set of pidfds up to date."""
        station = self._station
        if station is None:
            return
        wanted = (endpoint._own_bell, *endpoint._peer_fds())
        if wanted == self._descriptors:
            return
        for fd in set(self._descriptors) - set(wanted):
            station.ignore(fd)
        for fd in set(wanted) - set(self._descriptors):
            is_bell = fd == endpoint._own_bell
            station.listen(fd, endpoint._bell_callback() if is_bell else _weakly(endpoint._on_peer))
        self._descriptors = wanted

    def forget_descriptor(self, fd: int) -> None:
        """A descriptor is about to be closed."""
        if self._station is not None and fd in self._descriptors:
            self._station.ignore(fd)
            self._descriptors = tuple(other for other in self._descriptors if other != fd)

    def _is_head(self, operation: Any) -> bool:
        return next(iter(self._waiting), None) is operation

    def _arm(self, endpoint: Sleeper, station: _loop.Station, operation: Any, future: _loop.Future) -> None:
        if self._token is not None:
            self._disarm(endpoint)
        endpoint._touch_sets()
        horizon_us = endpoint._horizon_us()
        if horizon_us > 0 and self._watch(endpoint, station, future, horizon_us):
            stage = "monitor"
        elif endpoint._announce():
            future.set_result(True)
            return
        else:
            stage = "parked"
        if _seams.stage is not None:
            _seams.reached(stage, operation)

    def _watch(self, endpoint: Sleeper, station: _loop.Station, future: _loop.Future, horizon_us: float) -> bool:
        """Hand a wait to the waiter thread. False if there is no descriptor or thread for it: then it parks at once."""
        try:
            completion, self._token = station.watch(future)
            endpoint._monitor(completion, self._token, horizon_us)
        except OSError:
            self._disarm(endpoint)
            return False
        return True

    def _disarm(self, endpoint: Sleeper) -> None:
        token, self._token = self._token, None
        if token is None or self._station is None:
            return
        self._station.forget(token)
        endpoint._unmonitor()

    def _expire_in(self, station: _loop.Station, delay: float, operation: Any, deadline: float) -> None:
        self._timers[operation] = station.call_later(delay, self._expire, operation, deadline)

    def _expire(self, operation: Any, deadline: float) -> None:
        # Without its timer, an operation that was woken in this very turn sets a new one if it has to sleep again.
        del self._timers[operation]
        station, early = self._station, deadline - time.monotonic()
        if station is not None and early > 0:  # a loop that counts milliseconds
            self._expire_in(station, early, operation, deadline)
        else:
            _loop.wake(self._waiting[operation], False)

    def _move(self, endpoint: Sleeper, station: _loop.Station) -> None:
        if self._waiting:
            busy = WriterBusy if endpoint.rank is None else ReaderBusy
            raise busy(f"another event loop waits on {endpoint.role_name}")
        endpoint._home = None
        if self._station is not None:
            descriptors = self._descriptors
            self._station.run_soon(_ignore_all, self._station, descriptors)
            self._station.end(endpoint)
        self._station = station
        self._thread = threading.get_ident()
        self._descriptors = ()
        self.listen_to_peers(endpoint)


def _notified(operation: Any, done: _loop.Future) -> None:
    if not done.cancelled():
        _seams.reached("notified", operation)


def _weakly(method: Any) -> Callable[[], None]:
    """The method, for as long as its object lives otherwise: a loop must not keep endpoints that nobody has."""
    owner, function = weakref.ref(method.__self__), method.__func__

    def call() -> None:
        alive = owner()
        if alive is not None:
            function(alive)

    return call


def _ignore_all(station: _loop.Station, descriptors: tuple[int, ...]) -> None:
    for fd in descriptors:
        station.ignore(fd)
