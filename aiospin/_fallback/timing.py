"""Time-outs and counts as users pass them, and how long this thread's event loop has been kept from its own work.

Guarantee: a wrong argument is refused by name before anything waits. Assumption: the monotonic clock.
"""

from __future__ import annotations

import math
import operator
import threading
import time
from typing import Final

_FAIR_NS: Final = 100_000


def check_timeout(timeout: float | None) -> float | None:
    """None (for ever) or seconds; 0 polls once. TypeError or ValueError names anything else."""
    if timeout is None:
        return None
    if isinstance(timeout, bool):
        raise TypeError(f"timeout must be a number of seconds or None, not {timeout!r}")
    try:
        endless = math.isinf(timeout)
    except TypeError:
        raise TypeError(f"timeout must be a number of seconds or None, not {timeout!r}") from None
    if not timeout >= 0:  # NaN is not
        raise ValueError(f"timeout must be 0 or more seconds, or None, not {timeout!r}")
    return None if endless else timeout


def check_count(name: str, value: int, least: int) -> int:
    """An integer from `least` on. TypeError or ValueError names anything else."""
    try:
        count = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} is an integer, not {value!r}") from None
    if count < least:
        raise ValueError(f"{name} is at least {least}, not {value!r}")
    return count


class _Resumed(threading.local):
    at = 0


_resumed = _Resumed()


def loop_ran() -> None:
    """The loop has just resumed one of our awaits: it has had its turn."""
    _resumed.at = time.monotonic_ns()


def loop_is_due() -> bool:
    """More than 100 us have passed since the loop of this thread last resumed one of our awaits."""
    return time.monotonic_ns() - _resumed.at > _FAIR_NS
