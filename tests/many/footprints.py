"""What a process holds, and whether it grows: descriptors, threads, mappings, and the slope of its resident memory.

Guarantee: `Flat` takes a sample every so often; `judge` fails with figures when a count differs, or when the slope of
the second half is above the bound. Nothing here measures time.
Assumption: counts are exact, and are compared exactly. Memory is noisy, and the noise only adds (what is in use for a
moment, or could not be given back yet), so the line goes through the least of every few samples. With the allocator of
Python itself a step is 256 KiB; PYTHONMALLOC=malloc makes it a page.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from array import array
from dataclasses import dataclass

MOST_KIB_PER_100 = 1.0
_GROUP = 4

_libc = ctypes.CDLL(None)


def settle() -> None:
    """Have CPython's table of interned strings grow now: it doubles once, by half a MiB, in the course of any churn."""
    fillers = [sys.intern(f"filler {number}") for number in range(30_000)]
    del fillers


def descriptors() -> int:
    """How many are open, without the one that the look takes."""
    return len(os.listdir("/proc/self/fd")) - 1


def threads() -> int:
    return len(os.listdir("/proc/self/task"))


def mappings() -> int:
    """Address ranges that lead to shared memory of a segment. Those of the allocator come and go."""
    with open("/proc/self/maps", encoding="ascii", errors="replace") as maps:
        return sum("memfd:aiospin" in line for line in maps)


def private_kib() -> float:
    """Resident memory that is this process's own, in KiB, once whatever can be given back was.

    Pages that it has written, that is: pages of a library count as private while no other process happens to use it.
    """
    gc.collect()
    _libc.malloc_trim(0)
    with open("/proc/self/smaps_rollup", encoding="ascii") as rollup:
        return sum(float(line.split()[1]) for line in rollup if line.startswith("Private_Dirty"))


@dataclass
class Held:
    """Counts at one moment."""

    descriptors: int
    threads: int
    mappings: int

    @classmethod
    def now(cls) -> Held:
        gc.collect()
        return cls(descriptors(), threads(), mappings())


class Flat:
    """Watches a loop of `count` rounds: call `sample(number)` in each. What it keeps it has from the beginning."""

    def __init__(self, count: int, every: int) -> None:
        self._count = count
        self._every = every
        self._memory = array("d", bytes(8 * (count // every + 1)))
        self._first: Held | None = None
        self._last: Held | None = None

    def sample(self, number: int) -> None:
        if number % self._every != 0:
            return
        self._memory[number // self._every] = private_kib()
        held = Held.now()
        if number == self._every:  # the first rounds make what is made once
            self._first = held
        elif self._first is not None and held != self._first:
            raise AssertionError(f"after {number} rounds {held}, and {self._first} at the beginning")
        self._last = held

    @property
    def slope(self) -> float:
        """KiB per 100 rounds, by least squares over the second half. 0 when there are too few samples to say."""
        late = [(at * self._every, y) for at, y in enumerate(self._memory) if at * self._every >= self._count / 2]
        low = [min(late[at : at + _GROUP], key=lambda sample: sample[1]) for at in range(0, len(late), _GROUP)]
        if len(low) < 2:
            return 0.0
        mean_x, mean_y = (sum(values) / len(low) for values in zip(*low, strict=True))
        return 100 * sum((x - mean_x) * (y - mean_y) for x, y in low) / sum((x - mean_x) ** 2 for x, _ in low)

    def judge(self, bound: float = MOST_KIB_PER_100) -> str:
        """The figures. AssertionError when memory grows."""
        held = self._last
        assert held is not None and self._first is not None, "too few rounds to judge"
        figures = (
            f"{held.descriptors} descriptors, {held.threads} threads, {held.mappings} mappings throughout; memory "
            f"{self._memory[1]:.0f} -> {self._memory[-1]:.0f} KiB, slope {self.slope:+.3f} KiB per 100"
        )
        assert self.slope < bound, figures
        return figures
