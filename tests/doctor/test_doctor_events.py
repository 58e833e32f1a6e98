"""Counting instructions and cycles: what is read, and what is said where it is not allowed."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

import pytest

from aiospin.doctor.events import CYCLES, INSTRUCTIONS, READING, Events, open_event, scaled

pytestmark = pytest.mark.usefixtures("leaves_nothing")


def counting(*readings: bytes) -> Callable[[int], int]:
    """Opens pipes that hold these readings, one after the other."""
    left = list(readings)
    asked: list[int] = []

    def open_event(config: int) -> int:
        asked.append(config)
        assert asked == [INSTRUCTIONS, CYCLES][: len(asked)]
        reading, writing = os.pipe()
        os.write(writing, left.pop(0))
        os.close(writing)
        return reading

    return open_event


def test_counts_are_scaled_to_the_whole_time() -> None:
    with Events(counting(READING.pack(1000, 100, 100), READING.pack(300, 100, 50))) as events:
        assert (events.instructions(), events.cycles()) == (1000, 600)


def test_counters_that_never_ran_say_nothing() -> None:
    with Events(counting(READING.pack(0, 100, 0), b"short")) as events:
        assert (events.instructions(), events.cycles()) == (None, None)
    assert scaled(0, 0, 0) is None


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.EACCES, "perf_event_paranoid is above 2"),
        (errno.EPERM, "sandbox"),
        (errno.ENOENT, "virtual PMU"),
        (errno.ENOSYS, "no perf_event_open"),
        (errno.EINVAL, "Invalid argument"),
    ],
)
def test_why_they_cannot_be_counted(number: int, said: str) -> None:
    first = counting(b"")

    def second_is_refused(config: int) -> int:
        if config == CYCLES:
            raise OSError(number, os.strerror(number))
        return first(config)

    with pytest.raises(OSError) as caught:
        Events(second_is_refused)
    assert said in str(caught.value.strerror)
    assert caught.value.errno == number


def test_the_kernel_counts_or_says_why_not() -> None:
    try:
        with Events(open_event) as events:
            counted = events.instructions()
    except OSError as error:
        assert error.strerror
    else:
        assert counted is None or counted > 0


def test_a_cpu_whose_call_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "pdp11")
    with pytest.raises(OSError, match="no perf_event_open"):
        Events()
