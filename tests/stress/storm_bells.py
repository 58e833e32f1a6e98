"""Finds lost wake-ups, which aiospin's own look at sleepers, once a second, would repair before anybody notices.

That look is wrapped: when a sleeper is found ready, its bell must have rung, or ring as soon as the peer's process gets
to it (or a successor of that process does). A bell that stays silent for PATIENCE seconds is a lost wake-up. So is one
that has rung, and that the sleeper's event loop has not heard a few turns later.

Guarantee: raises Violation for one; costs nothing but at the look. Assumption: installed once, before the first wait.
"""

from __future__ import annotations

import select
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

from storm_message import Violation

import aiospin
from aiospin import _endpoint
from aiospin._endpoint import Endpoint

HOPS = 8  # turns of a loop; two are enough
HEARD_WITHIN = 0.25  # seconds that they take at least, in a process that others keep from running
PATIENCE = 20.0  # seconds; a killed peer has a successor long before

_pause = threading.Event()


def install(count: Callable[[], None], period: float) -> None:
    """From now on each look at a sleeper checks its bell; those of event loops are looked at every `period` seconds."""
    recheck, look_after, look_after_set = Endpoint._recheck, Endpoint._look_after, aiospin.WaitSet._look_after

    def checked_recheck(end: Any, waited: float) -> None:
        # A sleep that no bell has ended, unless a peer died as well; the fallback notes that it has drained the bell.
        if not _bereaved(end) if aiospin.backend == "native" else end.__dict__.get("_asleep", False):
            _listen(end, lambda: True)
            count()
        recheck(end, waited)

    def checked_look_after(end: Any) -> None:
        slept = _sleep_of(end)
        if slept is not None:
            _listen(end, lambda: _sleep_of(end) is not None)
            count()
            if end._ready() and _sleep_of(end) == slept:
                _expect_to_wake(end, slept, look_after, HOPS, time.monotonic() + HEARD_WITHIN)
                return
        look_after(end)

    def checked_look_after_set(waits: Any) -> None:
        for member, entry in list(waits._entries.items()):
            if not member.closed and member not in waits._candidates and entry.descriptors:
                _listen(member, lambda: True)
                count()
        look_after_set(waits)

    # aiospin has no seam here: it has no use for one.
    setattr(Endpoint, "_recheck", checked_recheck)  # noqa: B010
    setattr(Endpoint, "_look_after", checked_look_after)  # noqa: B010
    setattr(aiospin.WaitSet, "_look_after", checked_look_after_set)  # noqa: B010
    setattr(_endpoint, "LOOK_AFTER", period)  # noqa: B010
    for kind in (aiospin.QueueReader, aiospin.QueueWriter):
        _note_wakes(kind)
        if aiospin.backend == "fallback":
            _note_drains(kind)


def _note_wakes(kind: Any) -> None:
    """What parks without the Python half is awake from the bell's callback, or a kick, until it parks anew."""
    bell_callback, kick = kind._bell_callback, kind._kick

    def noted_bell_callback(end: Any) -> Callable[[], None]:
        called, reference = bell_callback(end), weakref.ref(end)

        def rang() -> None:
            alive = reference()
            if alive is not None:
                alive.__dict__["_woken_at"] = alive._counters()["parks"]
            called()

        return rang

    def noted_kick(end: Any) -> None:
        end.__dict__["_woken_at"] = end._counters()["parks"]
        kick(end)

    kind._bell_callback, kind._kick = noted_bell_callback, noted_kick


def _note_drains(kind: Any) -> None:
    announce, drain = kind._announce, kind._drain

    def noted_announce(end: Any) -> bool:
        ready: bool = announce(end)
        end.__dict__["_asleep"] = not ready
        return ready

    def noted_drain(end: Any) -> None:
        end.__dict__["_asleep"] = False
        drain(end)

    kind._announce, kind._drain = noted_announce, noted_drain


def _sleep_of(end: Any) -> object:
    """The sleep of the end's operation in a loop, if it sleeps and was not woken yet: equal only to itself."""
    if end._closed or not end._opened or end._queued == 0 or not end._may_attempt():
        return None
    if end._parked_operation is not None:
        parks = end._counters()["parks"]
        return None if parks == end.__dict__.get("_woken_at") else parks
    head = next(iter(end._line._waiting.values()), None)
    return None if head is None or head.done() else head


def _expect_to_wake(end: Any, slept: object, then: Callable[[Any], None], hops: int, until: float) -> None:
    """The bell has rung: after so many turns, and at that time, the loop must have heard it."""
    loop = end._line.station.loop
    if _sleep_of(end) != slept or loop is None:
        then(end)
    elif hops <= 0 and time.monotonic() > until:
        raise Violation(f"a deaf loop: the bell of {end!r} has rung, and {loop!r} does not listen; {end.statistics()}")
    else:
        loop.call_soon(_expect_to_wake, end, slept, then, hops - 1, until)


def _bereaved(end: Any) -> bool:
    poll = select.poll()
    for pidfd in end._peers.fds():
        poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(0))


def _listen(end: Any, sleeps: Callable[[], bool]) -> None:
    poll = select.poll()
    poll.register(end._own_bell, select.POLLIN)
    station = end._line.station
    if station is not None and station._completion is not None and end._line._token is not None:
        poll.register(station._completion.fileno(), select.POLLIN)  # the waiter thread rings there
    deadline = time.monotonic() + PATIENCE
    while end._opened and end._ready() and sleeps() and not poll.poll(0):
        if time.monotonic() > deadline:
            where = f"in {len(end._sets)} sets" if end._in_sets else "in no set"
            raise Violation(f"a lost wake-up: {end!r}, {where}, sleeps at {end._cursor}; {end.statistics()}")
        _pause.wait(0.002)
