"""Waiting for a word in memory that aiospin does not own: flags that a GPU or another program sets.

Nobody rings for such a word, so a wait watches it for a moment with the CPU's own low-power wait and then naps, longer
each time up to a bound that the caller sets: `max_nap` is the most that a wait can be late, and what idling costs.

Guarantee: a `timeout` of 0 looks once and never waits; signals are served between two naps; nothing is left behind by
a cancelled wait.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

from aiospin import _backend, _loop
from aiospin._deadline import Deadline
from aiospin._word import FIRST_NAP, WHOLE_WORD, Word

__all__ = ["Word", "await_word", "store_word", "wait_word"]

_WATCH_US = 50.0  # before the first nap


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

    Raises the built-in TimeoutError; ValueError for a word outside the buffer or out of alignment. Other Python threads
    run meanwhile.
    """
    word = Word(buffer, comparison, value, offset=offset, mask=mask, max_nap=max_nap)
    deadline = Deadline(timeout)
    if word.ready() or (timeout != 0 and word._watch.watch(_watch_us(deadline))):
        return
    for nap in _naps(word, deadline):
        time.sleep(nap)
        if word.ready():
            return


def store_word(buffer: Any, value: int, *, offset: int = 0) -> None:
    """Set the aligned 64-bit word at `offset` of a writable buffer: the other side of `wait_word`.

    What this thread wrote before is visible to whoever sees the word. Raises ValueError for a word outside the buffer
    or out of alignment, BufferError for a read-only one.
    """
    _backend.core.store_word(buffer, value, offset)


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
    """`wait_word` for coroutines: the waiter thread watches first, then the loop's timer looks."""
    word = Word(buffer, comparison, value, offset=offset, mask=mask, max_nap=max_nap)
    deadline = Deadline(timeout)
    if word.ready() or (timeout != 0 and await _watched(word._watch, _watch_us(deadline))):
        return
    for nap in _naps(word, deadline):
        await asyncio.sleep(nap)
        if word.ready():
            return


async def _watched(watch: Any, us: float) -> bool:
    """Whether the waiter thread saw the word change in time."""
    if _backend.name != "native":
        return bool(watch.ready())
    station = _loop.here()
    future = station.future()
    completion, token = station.watch(future)
    watch.monitor(completion, token, us)
    timer = station.call_later(us / 1e6, _loop.wake, future)
    try:
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
