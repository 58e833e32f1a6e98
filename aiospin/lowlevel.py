"""Waiting for memory that aiospin does not own: flags that a GPU or another program sets.

Nobody rings for such a flag, so a wait watches it for a moment with the CPU's own low-power wait and then naps, longer
each time up to a bound that the caller sets: `max_nap` is the most that a wait can be late, and what idling costs.

Guarantee: a `timeout` of 0 looks once and never waits; signals are served between two naps; nothing is left behind by
a wait, however it ends: the buffer can be closed or resized at once, even while its exception is being handled.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from aiospin import _backend, _loop
from aiospin._deadline import Deadline
from aiospin._word import FIRST_NAP, WHOLE_WORD, Word, require_nap, require_offset, require_unsigned

__all__ = ["Word", "await_word", "spinloop", "store_word", "wait_word"]

T = TypeVar("T")

_WATCH_US = 50.0  # before the first nap

# How much of a watch keeps the GIL: short pauses hold it, since dropping it is a gamble. Measured on two vCPUs, where
# `python -m tests.measure.gil_pauses` had both to itself. Alone, dropping adds less than 0.1 us to a pause of any
# length. Beside a thread that computes, that thread gets hold of the GIL in 10 % of the pauses of 0.5 us that drop it,
# in 25 % of those of 2 us, 40 % at 5 us and nearly always from 20 us on, and gives it back after the switch interval,
# 5 ms. Holding costs the others what it lasts, so no more than a value needs that is on its way already: a few
# transfers of a line, and what the other side does to answer.
_HELD_US = 2.0


def wait_word(
    buffer: Any,
    comparison: str,
    value: int,
    *,
    offset: int = 0,
    mask: int = WHOLE_WORD,
    timeout: float | None = None,
    max_nap: float = 1e-3,
) -> None:
    """Wait in this thread until `(word & mask) comparison value`.

    buffer      anything with the buffer protocol; read-only is enough
    offset      bytes from its start; the word is 64 bits, little-endian, aligned
    comparison  "==", "!=", ">=" or "<", unsigned
    timeout     seconds; None for ever, 0 to look once
    max_nap     seconds; the longest sleep between two looks

    Raises the built-in TimeoutError; ValueError for a word outside the buffer or out of alignment, and for a condition
    that no word can fulfil. Other Python threads run meanwhile.
    """
    deadline = Deadline(timeout)
    word = Word(buffer, comparison, value, offset=offset, mask=mask, max_nap=max_nap)
    try:
        if word.ready() or (timeout != 0 and word._watch.watch(_watch_us(deadline), _HELD_US)):
            return
        for nap in _naps(word, deadline):
            time.sleep(nap)
            if word.ready():
                return
    finally:
        word._watch.release()


def store_word(buffer: Any, value: int, *, offset: int = 0) -> None:
    """Set the aligned 64-bit word at `offset` of a writable buffer: the other side of `wait_word`.

    What this thread wrote before is visible to whoever sees the word. Raises ValueError for a word outside the buffer
    or out of alignment and for a value that does not fit 64 bits, BufferError for a read-only buffer.
    """
    _backend.core.store_word(buffer, require_unsigned("value", value), require_offset(offset))


def spinloop(
    buffer: Any,
    predicate: Callable[[], T],
    *,
    timeout: float | None = None,
    max_nap: float = 1e-3,
) -> T:
    """Wait in this thread until `predicate()` is true, and return what it returned.

    buffer     anything with the buffer protocol, of 1 to 4096 bytes; read-only is enough. A change of any of its bytes
               calls the predicate. All of them are watched: by the CPU's monitor, when they lie in one line that it
               can watch, else by comparing them every quarter of a microsecond
    predicate  takes nothing. It may look at other memory as well: it is called at least once per nap
    timeout    seconds; None for ever, 0 to call it once
    max_nap    seconds; the longest sleep between two calls; 0 never to sleep, which takes a CPU for as long as it lasts

    Raises the built-in TimeoutError, and whatever the predicate raises. Signals are served between two calls, in which
    other Python threads run; a change within 2 us of the last one is answered without letting them.

    A predicate costs a microsecond or more where `wait_word` takes nanoseconds, and it needs the GIL. Use this for a
    condition that no comparison of one word expresses.
    """
    deadline = Deadline(timeout)
    require_nap(max_nap, none_at_all=True)
    if not callable(predicate):
        raise TypeError(f"predicate must be callable, not {predicate!r}")
    watch = _backend.core.BytesWatch(buffer)
    try:
        return _spin(watch, predicate, deadline, max_nap)
    finally:
        watch.release()


def _spin(watch: Any, predicate: Callable[[], T], deadline: Deadline, max_nap: float) -> T:
    nap = 0.0  # of the next turn; 0 watches instead
    held_us = _HELD_US
    while not (found := predicate()):
        deadline.check("the predicate was not true")
        if nap == 0:
            changed = watch.watch(_watch_us(deadline), held_us)
        else:
            left = deadline.remaining()
            time.sleep(nap if left is None else min(nap, left))
            changed = watch.changed()
        # What has just changed may change again soon. What has not will not within the next 2 us.
        held_us = _HELD_US if changed else 0.0
        nap = 0.0 if changed else min(2 * nap or FIRST_NAP, max_nap)
    return found


async def await_word(
    buffer: Any,
    comparison: str,
    value: int,
    *,
    offset: int = 0,
    mask: int = WHOLE_WORD,
    timeout: float | None = None,
    max_nap: float = 1e-3,
) -> None:
    """`wait_word` for coroutines: the waiter thread watches first, then the loop's timer looks.

    A loop's timers count whole milliseconds, so a nap is one at least, and the wait may be late by as much. The loop
    gets a turn in every call, so awaiting what holds already, again and again, keeps nobody else from running.
    """
    deadline = Deadline(timeout)
    word = Word(buffer, comparison, value, offset=offset, mask=mask, max_nap=max_nap)
    try:
        if word.ready():
            await asyncio.sleep(0)
            return
        if timeout != 0 and await _watched(word._watch, _watch_us(deadline)):
            return
        for nap in _naps(word, deadline):
            await asyncio.sleep(math.ceil(nap * 1e3) / 1e3)  # less would be no nap on uvloop, and keep it busy
            if word.ready():
                return
    finally:
        word._watch.release()


async def _watched(watch: Any, us: float) -> bool:
    """Whether the waiter thread saw the word change in time."""
    if _backend.name != "native":
        return bool(watch.ready())
    station = _loop.here()
    future = station.future()
    completion, token = station.watch(future)
    timer = station.call_later(us / 1e6, _loop.wake, future)
    try:
        watch.monitor(completion, token, us)
        await future
    finally:
        timer.cancel()
        station.forget(token)
        watch.unmonitor()
    return bool(watch.ready())


def _naps(word: Word, deadline: Deadline) -> Iterator[float]:
    """Sleeps, each twice the last up to the word's bound; TimeoutError once the time is over."""
    nap = min(FIRST_NAP, word.max_nap)
    while True:
        deadline.check(f"no {word!r}")
        left = deadline.remaining()
        yield nap if left is None else min(nap, left)
        nap = min(2 * nap, word.max_nap)


def _watch_us(deadline: Deadline) -> float:
    left = deadline.remaining()
    return _WATCH_US if left is None else min(_WATCH_US, left * 1e6)
