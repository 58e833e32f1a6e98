"""spinloop and memory_fence under the names and with the arguments of the extension that they stand in for.

Guarantee: `spinloop` asks its callback whenever one of the first 4096 bytes of the buffer changes, and at least once
per nap besides, so that a callback may look at other memory too. Whatever the callback raises comes out, and nothing is
left of a wait: the buffer can be closed or resized at once.
Assumption: nobody rings for these bytes. Whoever has a queue waits with the queue, which sleeps until it is woken.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Final, SupportsFloat, SupportsIndex

from aiospin import _pages, lowlevel
from aiospin._deadline import Deadline
from aiospin.compat.vllm import _settings

# At most so many bytes are compared between two looks.
_WATCHED: Final = 4096

# Seconds. With a change every 5 ms, on two vCPUs: 0.05 ms late and 16 % of a CPU at 50 us; 0.01 ms and all of it
# without a nap; 0.5 ms and 4 % at a millisecond. Who spins wants the answer.
_LONGEST_NAP: Final = 50e-6

# The same without the CPU's wait instructions: turns that only give up the CPU, and then naps, each twice the last.
_TURNS: Final = 16
_FIRST_TURN_NAP: Final = 50e-6
_LONGEST_TURN_NAP: Final = 1e-3

# A lock is taken by an atomic exchange, which no load or store passes on x86-64. Elsewhere it orders less.
_exchange = threading.Lock()


def spinloop(buffer: Any, callback: Callable[[], Any], timeout: float = 0.0) -> bool:
    """Wait in this thread until `callback()` is true: True then, False when the time is over.

    buffer    anything with the buffer protocol, contiguous; read-only is enough, and so is an empty one
    callback  takes nothing; called at once, when a byte of the buffer changes, and at least every 0.1 ms or so
    timeout   seconds; 0.0, what is below, and nan are no limit

    It watches with the CPU's own low-power wait. With VLLM_USE_SPINLOOP_EXT=0 it looks in turn instead: it gives up the
    CPU, and then sleeps for up to a millisecond between two calls.

    Raises TypeError for what is no buffer, no callable or no number, BufferError for a buffer with gaps.
    """
    if not callable(callback):
        raise TypeError(f"callback must be callable, not {callback!r}")
    limit = _limit(timeout)
    with memoryview(buffer) as view:
        if not view.c_contiguous:
            raise BufferError(f"a buffer with gaps cannot be watched: shape {view.shape}, strides {view.strides}")
        if view.nbytes == 0 or not _settings.NATIVE_WAIT:
            return _look_in_turn(callback, limit)
        if view.nbytes <= _WATCHED:
            return _watch(view, callback, limit)
        with view.cast("B") as whole, whole[:_WATCHED] as first:
            return _watch(first, callback, limit)


def memory_fence() -> None:
    """A full barrier: what this thread stored before is visible to every process before it loads what comes after.

    It asks the kernel, which has every running thread of the processes that use aiospin take part, and takes about a
    microsecond. Where the kernel refuses (an old one, a seccomp filter), an atomic exchange does it on x86-64, and
    elsewhere nothing so strong is at hand. Queues of this package need no fence.
    """
    if not _pages.barrier():
        with _exchange:
            pass


def _limit(timeout: Any) -> float | None:
    """Seconds, None for no limit. TypeError for what is no number."""
    if not isinstance(timeout, (float, SupportsFloat, SupportsIndex)):  # the protocols are slow to ask
        raise TypeError(f"timeout must be a number of seconds, not {timeout!r}")
    seconds = float(timeout)
    return seconds if seconds > 0 else None


def _watch(view: memoryview, callback: Callable[[], Any], limit: float | None) -> bool:
    asking = False

    def ask() -> bool:
        nonlocal asking
        asking = True
        answer = bool(callback())
        asking = False
        return answer

    try:
        return lowlevel.spinloop(view, ask, timeout=limit, max_nap=_LONGEST_NAP)
    except TimeoutError:
        if asking:  # it is the callback's own
            raise
        return False


def _look_in_turn(callback: Callable[[], Any], limit: float | None) -> bool:
    deadline = Deadline(limit)
    turn, nap = 0, 0.0
    while not callback():
        left = deadline.remaining()
        if left == 0:
            return False
        time.sleep(nap if left is None else min(nap, left))
        turn += 1
        if turn >= _TURNS:
            nap = min(2 * nap or _FIRST_TURN_NAP, _LONGEST_TURN_NAP)
    return True
