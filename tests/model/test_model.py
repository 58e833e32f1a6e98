"""The doorbell protocol, explored: no lost wake in either direction, and every simplification of it loses one.

The larger configurations are CI's (`.ci/model`), since they take a minute; so are the models in Promela (spin/).
"""

from __future__ import annotations

import itertools

import doorbell
import pytest
import room
from doorbell import Doorbell
from room import Room


@pytest.mark.parametrize("light", [False, True])
@pytest.mark.parametrize(("readers", "slots"), [(1, 1), (1, 2), (1, 3)])
def test_no_wake_of_a_reader_is_lost(readers: int, slots: int, light: bool) -> None:
    assert not Doorbell(readers, slots, light=light).run().trace


def test_no_wake_of_two_readers_is_lost() -> None:
    assert not Doorbell(2, 1).run().trace


@pytest.mark.parametrize("mutant", doorbell.MUTANTS)
def test_each_simplification_loses_a_reader(mutant: str) -> None:
    assert Doorbell(1, 1, mutant=mutant).run().stuck


@pytest.mark.parametrize("mutant", doorbell.LIGHT_MUTANTS)
def test_each_light_simplification_loses_a_reader(mutant: str) -> None:
    assert Doorbell(1, 1, light=True, mutant=mutant).run().stuck


@pytest.mark.parametrize("light", [False, True])
@pytest.mark.parametrize(("readers", "slots", "capacity"), [(1, 3, 1), (1, 4, 2), (2, 2, 1)])
def test_no_wake_of_the_writer_is_lost(readers: int, slots: int, capacity: int, light: bool) -> None:
    assert not Room(readers, slots, capacity, light=light).run().trace


@pytest.mark.parametrize("mutant", room.MUTANTS)
def test_each_simplification_loses_the_writer(mutant: str) -> None:
    assert Room(1, 3, mutant=mutant).run().stuck


@pytest.mark.parametrize("mutant", room.LIGHT_MUTANTS)
def test_each_light_simplification_loses_the_writer(mutant: str) -> None:
    assert Room(2, 2, light=True, mutant=mutant).run().stuck


def test_a_trace_leads_from_the_start_to_the_sleeper() -> None:
    model = Doorbell(1, 1, mutant="no_recheck")
    trace = model.run().trace
    assert trace[0] == model.start()
    for before, after in itertools.pairwise(trace):
        assert after in set(model.successors(before))
    assert trace[-1].readers[0].step == "sleep" and not set(model.successors(trace[-1]))
