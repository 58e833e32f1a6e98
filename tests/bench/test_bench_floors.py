"""The floors of native/floor: that each does what it says, and leaves nothing behind."""

from __future__ import annotations

import pytest

from aiospin.bench import floors

pytestmark = pytest.mark.native


@pytest.fixture
def native(leaves_nothing: object) -> object:
    assert floors.missing() is None
    return floors.native()


def test_a_cache_line_bounces(native: object) -> None:
    took = floors.native().floor_bounce(5, 100)
    assert len(took) == 5
    assert all(each > 0 for each in took)


@pytest.mark.parametrize("gap", [0, 50_000, 1_000_000])
def test_a_pipe_wakes_a_sleeper(native: object, gap: int) -> None:
    wakes = floors.native().floor_wake(20, gap)
    assert len(wakes.one_way) == len(wakes.round_trip) == 20
    assert all(one <= both for one, both in zip(wakes.one_way, wakes.round_trip, strict=True))
    assert wakes.wall >= 20 * gap
    assert 0 < wakes.reader_cpu <= wakes.wall


@pytest.mark.parametrize("readers", [1, 3, 8])
def test_writes_to_many_pipes_reach_the_last(native: object, readers: int) -> None:
    wakes = floors.native().floor_fan(readers, 20, 100_000)
    assert len(wakes.one_way) == len(wakes.write_cost) == 20
    assert not wakes.round_trip
    assert all(each > 0 for each in wakes.one_way)


@pytest.mark.parametrize(("nbytes", "ring"), [(8, 1 << 20), (100_000, 1 << 20), (1 << 20, 100)])
def test_copies_take_time(native: object, nbytes: int, ring: int) -> None:
    assert floors.native().floor_copy(30, nbytes, ring) > 0


def test_what_cannot_be_mapped_is_an_error(native: object) -> None:
    with pytest.raises((OSError, MemoryError)):
        floors.native().floor_copy(1, 1 << 60, 1)
