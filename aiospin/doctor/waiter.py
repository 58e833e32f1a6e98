"""The program of one way to wait: a child of the contest that waits for a word, over and over, in one way.

Guarantee: it ends when the word says so, or within a second of its parent's death. Its last word is one line of JSON.
Assumption: the parent stores the time to STAMP, then a number to WORD that is one more than what ACK says.

A wait lasts longer than `lowlevel.wait_word` watches before it naps, so rungs are asked through the watch in it.
"""

from __future__ import annotations

import json
import mmap
import os
import resource
import select
import time
from collections.abc import Callable
from typing import Any, Final

from aiospin import lowlevel
from aiospin.doctor.events import Events

WORD: Final = 0
STAMP: Final = 128
ACK: Final = 256
UNUSED: Final = 384
SIZE: Final = 4096
"""bytes of the shared page; the rest are offsets in it"""
LAST: Final = 1 << 62
"""the number that ends it"""
SLICE: Final = 0.1
"""seconds after which a wait looks whether the parent is still there"""
LOOKS: Final = 1 << 16
"""of a busy poll, likewise"""
WARM_UP: Final = 10
"""one wait in so many is left out, at the beginning"""

Wait = Callable[[int], bool]
"""waits for a number, for about SLICE; whether it came"""


def main(mode: str, memory: int, bell: int, parent: int) -> None:
    """`memory` and `bell` are descriptors; `parent` is the process that stores."""
    with mmap.mmap(memory, SIZE) as page, memoryview(page) as whole, whole.cast("Q") as words:
        print(json.dumps(play(_way(mode, page, words, bell), page, words, parent)), flush=True)


def play(wait: Wait, page: Any, words: Any, parent: int) -> dict[str, Any]:
    """Wait until the last number has come, and say how that went."""
    events, uncounted = _events()
    number = 1
    latencies: list[int] = []
    begun = Usage()
    lowlevel.store_word(page, number, offset=ACK)
    while number != LAST:
        while not wait(number + 1):
            if os.getppid() != parent:
                return {}
        woken = time.monotonic_ns()
        number = words[WORD // 8]
        latencies.append(woken - words[STAMP // 8])
        lowlevel.store_word(page, number, offset=ACK)
    used = begun.until_now()
    counted: dict[str, int | None] = {"instructions": None, "cycles": None}
    if events is not None:
        with events:
            counted = {"instructions": events.instructions(), "cycles": events.cycles()}
    return {
        "latencies_ns": sorted(latencies[len(latencies) // WARM_UP : -1]),
        "uncounted": uncounted,
        **used,
        **counted,
    }


class Usage:
    """What this process has used since it was made."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.monotonic_ns(), time.process_time_ns()
        self._usage = resource.getrusage(resource.RUSAGE_SELF)

    def until_now(self) -> dict[str, Any]:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return {
            "wall_ns": time.monotonic_ns() - self._wall,
            "cpu_ns": time.process_time_ns() - self._cpu,
            "voluntary": usage.ru_nvcsw - self._usage.ru_nvcsw,
            "involuntary": usage.ru_nivcsw - self._usage.ru_nivcsw,
        }


def _events() -> tuple[Events | None, str | None]:
    try:
        return Events(), None
    except OSError as error:
        return None, error.strerror


def _way(mode: str, page: Any, words: Any, bell: int) -> Wait:
    """How each mode waits. A rung is AIOSPIN_RUNG's."""

    def watch(number: int) -> bool:
        return bool(lowlevel.Word(page, ">=", number, offset=WORD)._watch.watch(SLICE * 1e6, 0.0))

    def park(number: int) -> bool:
        if words[WORD // 8] >= number:
            return True
        poller.poll(SLICE * 1e3)
        try:
            os.read(bell, SIZE)
        except BlockingIOError:
            return False
        return bool(words[WORD // 8] >= number)

    def poll(number: int) -> bool:
        return any(words[WORD // 8] >= number for _ in range(LOOKS))

    poller = select.poll()
    poller.register(bell, select.POLLIN)
    return {"park": park, "busy poll": poll}.get(mode, watch)
