"""Waits whose end is known: by a store, by the deadline, by a limit, each the only one that the emulated CPU allows.

Run by `.ci/emulation`, by name and once per rung: it needs waitemu.cpp underneath, so it is not named like a test file.

A store comes from another process, after the wait has begun: the page says so. Counts are those of this process alone
between two readings, and exact.
"""

from __future__ import annotations

import mmap
import os
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from emulated_cpu import ENDS, ENVIRONMENT, INSTRUCTIONS, EmulatedCpu

import aiospin
from aiospin.lowlevel import wait_word


@dataclass(frozen=True)
class Rung:
    """What a rung executes, and how the emulated CPU cuts its waits short."""

    arms: str | None
    waits: str
    cut_by: str

    @property
    def instructions(self) -> set[str]:
        return {self.waits} | ({self.arms} if self.arms else set())


RUNGS = {
    "umwait": Rung("umonitor", "umwait", "limit"),
    "mwaitx": Rung("monitorx", "mwaitx", "interrupt"),
    "tpause": Rung(None, "tpause", "limit"),
}
RUNG = RUNGS[aiospin.rung()]
OFFSET = 128  # a line of its own

# Stores once as many waits have begun as it is told. It is not emulated, and shares no GIL with who waits.
STORER = """
import mmap, os, pathlib, struct, sys
from emulated_cpu import EmulatedCpu
page, count, beyond, file, offset = sys.argv[1:]
cpu = EmulatedCpu(pathlib.Path(page), fresh=False)
with open(file, "r+b") as opened:
    word = mmap.mmap(opened.fileno(), 0)
print("ready", flush=True)
while cpu.counts()[count] <= int(beyond):
    os.sched_yield()
struct.pack_into("<Q", word, int(offset), 1)
"""


@pytest.fixture
def cpu() -> Iterator[EmulatedCpu]:
    """The CPU underneath, as it is by default, before and after."""
    aiospin._backend.core.rungs()  # tried, if that was not done before
    page = EmulatedCpu(Path(os.environ[ENVIRONMENT]), fresh=False)
    page.set_waits()
    yield page
    page.set_waits()
    page.close()


@pytest.fixture
def word(tmp_path: Path) -> Iterator[mmap.mmap]:
    """A word that is 0, in memory that other processes can map."""
    file = tmp_path / "word"
    file.write_bytes(bytes(4096))
    with file.open("r+b") as opened, mmap.mmap(opened.fileno(), 0) as mapped:
        yield mapped


@contextmanager
def storer(cpu: EmulatedCpu, file: Path) -> Iterator[None]:
    """Another process that stores to the word in `file` once one more wait has begun."""
    environment = {name: value for name, value in os.environ.items() if name not in ("LD_PRELOAD", ENVIRONMENT)}
    environment["PYTHONPATH"] = str(Path(__file__).resolve().parent)
    count = [RUNG.waits, str(cpu.counts()[RUNG.waits])]
    command = [sys.executable, "-c", STORER, str(cpu.file), *count, str(file), str(OFFSET)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == b"ready\n"
            yield
        except BaseException:
            process.kill()
            raise
    assert process.returncode == 0


def since(before: Counter[str], cpu: EmulatedCpu) -> dict[str, int]:
    """What happened since then."""
    now = cpu.counts()
    return {name: now[name] - before[name] for name in now}


def assert_consistent(made: dict[str, int]) -> None:
    """Every wait of this rung ended in one way, nothing else was executed, and each was armed."""
    assert made[RUNG.waits] == sum(made[end] for end in ENDS)
    assert {name for name in INSTRUCTIONS if made[name]} == RUNG.instructions
    assert RUNG.arms is None or made[RUNG.arms] >= made[RUNG.waits]
    assert made["unarmed"] == 0


def test_a_store_ends_a_wait(cpu: EmulatedCpu, word: mmap.mmap, tmp_path: Path) -> None:
    # TPAUSE does not watch memory: it naps to its deadline, and looks.
    end = "store" if RUNG.arms else "deadline"
    cpu.set_waits(ends=[end])
    before = cpu.counts()
    for turn in range(1, 6):
        struct.pack_into("<Q", word, OFFSET, 0)
        with storer(cpu, tmp_path / "word"):
            wait_until_stored(word)
        if RUNG.arms:  # the wait had begun, and nothing but the store could end it: one doze, and that is all
            assert since(before, cpu)[RUNG.waits] == turn
    made = since(before, cpu)
    assert_consistent(made)
    assert made[end] == made[RUNG.waits] >= 5


def wait_until_stored(word: mmap.mmap) -> None:
    """Wait, and again when this process was kept from the CPU until the time to watch was over."""
    while True:
        try:
            return wait_word(word, "==", 1, offset=OFFSET, timeout=1e-3)
        except TimeoutError:
            continue


def test_the_deadline_ends_a_wait(cpu: EmulatedCpu, word: mmap.mmap) -> None:
    cpu.set_waits(ends=["deadline"])
    before = cpu.counts()
    while cpu.counts()["deadline"] < before["deadline"] + 20:
        with pytest.raises(TimeoutError):
            wait_word(word, "==", 1, offset=OFFSET, timeout=1e-4)
    made = since(before, cpu)
    assert_consistent(made)
    assert made["deadline"] == made[RUNG.waits]


def test_a_wait_that_is_cut_short_goes_on(cpu: EmulatedCpu, word: mmap.mmap) -> None:
    """By the limit of the OS, which sets CF, or by an interrupt: the word is watched again, in the same wait."""
    cpu.set_waits(limit=1000, interrupt=1000 if RUNG.cut_by == "interrupt" else 10**12, ends=[RUNG.cut_by])
    before, calls = cpu.counts(), 0
    parts = 2  # of a call: the first keeps the GIL, the second does not
    while cpu.counts()[RUNG.waits] <= before[RUNG.waits] + parts * calls + 20:
        calls += 1
        with pytest.raises(TimeoutError):
            wait_word(word, "==", 1, offset=OFFSET, timeout=1e-4)
    made = since(before, cpu)
    assert_consistent(made)
    assert made[RUNG.cut_by] == made[RUNG.waits]
