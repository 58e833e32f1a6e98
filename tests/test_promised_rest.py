"""A wait costs nothing while nothing happens: no CPU, no core that others need, no interpreter lock.

Guarantee: what is judged is CPU time, as a share of the time that the wait took; so a slow machine changes nothing.
Assumption: nothing else in this process works meanwhile.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from ends import LARGEST, asleep, epoch, pair

import aiospin
from aiospin import _endpoint

pytestmark = pytest.mark.usefixtures("leaves_nothing")

LONG = 0.25  # seconds
WATCHFUL = "latency"  # the preset that watches longest of those that park


def share_of_a_core(wait: Callable[[float], object]) -> float:
    """Let it wait in vain, and return how much of that time some thread of this process was on a CPU."""
    for seconds in (0.01, LONG):  # the first time has things to find out
        before, begun = time.process_time(), time.monotonic()
        with pytest.raises(TimeoutError):
            wait(seconds)
        took = time.monotonic() - begun
        assert took >= seconds
    return (time.process_time() - before) / took


def test_a_reader_and_a_writer_that_wait_leave_the_cpu_alone() -> None:
    with pair(policy=WATCHFUL) as (writer, reader):
        assert share_of_a_core(lambda seconds: reader.get(timeout=seconds)) < 0.1
        writer.put(bytes(LARGEST))
        assert share_of_a_core(lambda seconds: writer.put(b"more", timeout=seconds)) < 0.1


def test_a_wait_set_leaves_the_cpu_alone() -> None:
    with pair(policy=WATCHFUL) as (writer, reader), aiospin.WaitSet([reader]) as waits:
        writer.__enter__()
        assert share_of_a_core(lambda seconds: waits.wait_sync(timeout=seconds)) < 0.1


def test_an_awaited_call_leaves_the_cpu_alone(run_async: Callable[[Any], Any]) -> None:
    with pair(policy=WATCHFUL) as (writer, reader):
        writer.__enter__()

        async def wait(seconds: float) -> None:
            await reader.aget(timeout=seconds)

        assert share_of_a_core(lambda seconds: run_async(wait(seconds))) < 0.1


@pytest.mark.native
@pytest.mark.parametrize("cpus", [1, 64])
def test_who_shares_too_few_cpus_does_not_watch(cpus: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The roles that live on the segment are counted, not those that a test says there are."""

    def usable(*_: int) -> int:
        return cpus

    monkeypatch.setattr(_endpoint, "usable_cpus", usable)
    with pair(policy=WATCHFUL) as (writer, reader):
        for end in (writer, reader):
            end.__enter__()
        with pytest.raises(TimeoutError):
            reader.get(timeout=0.001)
        assert reader._horizon.crowded == (cpus == 1)


@pytest.mark.parametrize("policy", ["eco", "pinned"])
def test_another_thread_gets_the_interpreter_within_one_sleep(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Were it kept, the others would run only when the sleep comes up to look around, or, watching, never."""
    with ThreadPoolExecutor(1) as pool, pair(policy=policy) as (writer, reader):
        writer.__enter__()
        reader.__enter__()
        rounds: list[list[float]] = []
        for _ in range(5):  # a machine that stands still for a second spoils one of them, not all
            looked_around: list[float] = []
            monkeypatch.setattr(reader, "_recheck", looked_around.append)
            waiting = threading.Event()

            def answer(since: int, waiting: threading.Event = waiting) -> None:
                waiting.wait()
                if policy != "pinned" or aiospin.backend == "fallback":
                    asleep(reader, since)
                writer.put(b"from the other thread")

            answering = pool.submit(answer, epoch(reader))
            waiting.set()
            assert reader.get() == b"from the other thread"
            answering.result()
            rounds.append(looked_around)
        assert [] in rounds
