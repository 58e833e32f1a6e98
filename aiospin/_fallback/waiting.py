"""The park of a thread: announce, look again, sleep on the bell.

Guarantee: no wake is lost, signal handlers run at once, and no nap is longer than a second (10 ms where the kernel
refuses the barrier that makes the first promise true).
Assumption: one sleeper per bell, the endpoint's waiter.
"""

from __future__ import annotations

import asyncio
import math
import select
import time
from typing import TYPE_CHECKING, Any, Final

from aiospin._fallback.ring import NOT_READY

if TYPE_CHECKING:
    from aiospin._fallback.endpoint import Attempt, Endpoint

_NAP: Final = 1.0
_SHORT_NAP: Final = 0.010
_LOOK_AROUND: Final = 1.0  # seconds between looks at the peers


def park(endpoint: Endpoint, attempt: Attempt, timeout: float | None, begun: float | None) -> Any:
    """Sleep until an attempt succeeds, and return its result. Raises what it raises, or TimeoutError."""
    if asyncio._get_running_loop() is not None:
        endpoint._blocking()
    looked = time.monotonic()
    begun = looked if begun is None else begun
    deadline = math.inf if timeout is None else begun + timeout
    mapping = endpoint._mapping
    nap = _NAP if mapping is not None and mapping.barriers else _SHORT_NAP
    announced = False
    while True:
        if not announced:
            announced = not endpoint._announce()
        if announced:
            now = time.monotonic()
            if now >= deadline:
                raise endpoint._late(timeout)
            rung, others = _sleep(endpoint._bell, endpoint._peer_fds(), min(nap, deadline - now))
            now = time.monotonic()
            if rung:
                # The epoch is spent: finding nothing means parking again with a new one.
                endpoint._drain()
                announced = False
            if others or now - looked >= _LOOK_AROUND:
                looked = now
                endpoint._recheck(now - begun)
        result = attempt()
        if result is not NOT_READY:
            return result


def _sleep(bell: int, others: list[int], seconds: float) -> tuple[bool, bool]:
    """Which of the bell and the others woke us; neither when the time was up."""
    if bell < 0:  # ended by another thread: the next attempt says so
        return False, False
    poll = select.poll()
    poll.register(bell, select.POLLIN)
    for other in others:
        poll.register(other, select.POLLIN)
    fired = {fd for fd, _ in poll.poll(math.ceil(seconds * 1000))}
    return bell in fired, bool(fired - {bell})
