"""Waits whose end is known: by a store, by the deadline, by a limit, each the only one that the emulated CPU allows.

Run by `.ci/emulation`, by name and once per rung: it needs waitemu.cpp underneath, so it is not named like a test file.

A store comes from another process, after the wait has begun: the page says so. Counts are those of this process alone
between two readings, and exact.
"""

from __future__ import annotations

import mmap
import os
import signal
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


def test_a_program_s_own_sigill_leaves_waits_alone(cpu: EmulatedCpu, word: mmap.mmap) -> None:
    """A handler installed later gets what is sent to it, and blocking the signal does not kill who waits."""
    heard = []
    handler = signal.signal(signal.SIGILL, lambda number, frame: heard.append(number))
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGILL})
    try:
        before = cpu.counts()
        while cpu.counts()[RUNG.waits] == before[RUNG.waits]:
            with pytest.raises(TimeoutError):
                wait_word(word, "==", 1, offset=OFFSET, timeout=1e-4)
        assert not heard
        signal.raise_signal(signal.SIGILL)
        assert heard == [signal.SIGILL]
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        signal.signal(signal.SIGILL, handler)


# Runs machine code, and says that it came back.
EXECUTE = """
import ctypes, mmap, sys
page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
page.write(bytes.fromhex(sys.argv[1]))
ctypes.CFUNCTYPE(None)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()
print("returned")
"""
RETURN = "c3"
ACCEPTED = {
    "tpause until a time that is over": "31 c9 31 c0 31 d2 66 0f 0b f1",
    "umonitor by another register": "48 89 e6 f3 0f 0b f6",
    "umonitor by a numbered register": "49 89 e0 f3 41 0f 0b f0",
}
REFUSED = {
    "a reserved bit of umwait's control": "b9 02 00 00 00 f2 0f 0b f1",
    "a reserved bit of tpause's control": "b9 02 00 00 00 66 0f 0b f1",
    "an extension of monitorx": "48 89 e0 b9 01 00 00 00 31 d2 0f 0b fa",
    "a reserved extension of mwaitx": "b9 04 00 00 00 0f 0b fb",
    "what nobody patched": "0f 0b",
}


@pytest.mark.parametrize("code", ACCEPTED.values(), ids=ACCEPTED)
def test_operands_are_read_as_the_manuals_say(code: str) -> None:
    assert execute(code) == (0, "returned\n")


@pytest.mark.parametrize("code", REFUSED.values(), ids=REFUSED)
def test_what_the_cpu_would_refuse_is_fatal(code: str) -> None:
    assert execute(code) == (-signal.SIGILL, "")


def execute(code: str) -> tuple[int, str]:
    """Run it in another Python on this CPU; its exit status, and what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", EXECUTE, f"{code} {RETURN}"], stdout=subprocess.PIPE, text=True, check=False
    )
    return done.returncode, done.stdout
