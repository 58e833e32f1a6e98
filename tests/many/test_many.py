"""Many of everything, on a small scale: what must be flat is flat, all messages arrive. Full numbers: .ci/many."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import scenes
from footprints import Flat

pytestmark = pytest.mark.usefixtures("leaves_nothing")


def test_queues_at_once(new_loop: Callable[[], Any]) -> None:
    scenes.queues(20, new_loop)


def test_64_readers_of_one_queue_in_2_processes() -> None:
    scenes.readers_in_processes(2, 32, 30)


def test_64_readers_of_one_queue_in_threads() -> None:
    scenes.readers_in_threads(64, 50)


def test_loops_in_turn(new_loop: Callable[[], Any]) -> None:
    scenes.loops(24, 8, new_loop, math.inf)


def test_ends_come_and_go() -> None:
    scenes.comings_and_goings(20, 10, math.inf)
    scenes.comings_and_goings_here(20, 10, math.inf)


def test_queues_come_and_go() -> None:
    scenes.one_after_the_other(20, 10, math.inf)


@pytest.mark.parametrize("per_round", [0, 20, 100])
def test_the_slope_tells_growth(per_round: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """20 bytes per round are 2 KB per 100, and too much; noise above a flat floor is not."""
    flat, reading = Flat(4000, 100), iter(range(41))

    def read() -> float:
        at = next(reading)
        return 10_000 + 100 * at * per_round / 1024 + (300 if at % 3 == 0 else 0)

    monkeypatch.setattr("footprints.private_kib", read)
    for number in range(4001):
        flat.sample(number)
    assert flat.slope == pytest.approx(100 * per_round / 1024, abs=0.3)
    if per_round:
        with pytest.raises(AssertionError, match="slope"):
            flat.judge()
    else:
        assert "slope" in flat.judge()


def test_the_counts_tell_a_leak() -> None:
    flat, left = Flat(4, 1), []
    flat.sample(0)
    flat.sample(1)
    left.append(open("/dev/null", "rb"))
    with pytest.raises(AssertionError, match="after 2 rounds"):
        flat.sample(2)
    left.pop().close()
