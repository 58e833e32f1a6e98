"""How long waits watch before they sleep: the knobs and their bad values, and the learned horizon as properties.

What the rule keeps, in the model of policy_waits.py, over periodic, bursty, Poisson and alternating waits:

* where a park costs no more than the longest wait in place (I = 20 us), the cost is at most twice that of the better of
  always watching and always parking, with no start-up term once the price P is the assumed one;
* where it costs more, the factor is 1 + P / I, at most 4.25 at 65 us: a burst of short waits lets the horizon decay
  towards them, and the wait after it, a little longer than I, pays for both. Start-up, while P is learned from the
  first parks, adds at most 4 P.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
from ends import RING, ends
from hypothesis import given, settings
from hypothesis import strategies as st
from policy_waits import GRACE, PARK, Clocked, alternating, best_fixed, bursty, periodic, poisson
from programs import Program

import aiospin
from aiospin._policy import PRESETS, resolve

IN_PLACE = 20.0


@pytest.mark.parametrize(
    ("field", "value", "error"),
    [
        (field, value, error)
        for field in ("minimum_us", "maximum_us", "inline_us", "core_share")
        for value, error in (
            *[(each, ValueError) for each in (-1, -0.001, math.nan, math.inf, 10**400)],
            *[("1", TypeError), (None, TypeError), (True, TypeError), ([], TypeError)],
        )
    ],
)
def test_a_number_that_no_policy_can_have(field: str, value: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=field) as caught:
        aiospin.WaitPolicy(**{field: value})
    assert repr(value) in str(caught.value)


def test_numbers_that_contradict_each_other() -> None:
    with pytest.raises(ValueError, match=r"core_share.*1\.01"):
        aiospin.WaitPolicy(core_share=1.01)
    with pytest.raises(ValueError, match=r"minimum_us 30 is above maximum_us 20"):
        aiospin.WaitPolicy(minimum_us=30, maximum_us=20)
    aiospin.WaitPolicy(minimum_us=30)  # a maximum of 0 is the price of a park, whatever that is


def test_a_policy_is_frozen_and_replace_makes_another() -> None:
    policy = PRESETS["latency"]
    with pytest.raises(dataclasses.FrozenInstanceError):
        policy.maximum_us = 1  # type: ignore[misc]
    other = policy.replace(maximum_us=50.0)
    assert (other.name, other.maximum_us, other.core_share) == ("custom", 50.0, policy.core_share)
    assert policy.maximum_us == 200
    with pytest.raises(ValueError, match="maximum_us"):
        policy.replace(maximum_us=-1)
    with pytest.raises(TypeError, match="speed"):
        policy.replace(speed=1)


def test_presets() -> None:
    assert set(PRESETS) == {"eco", "balanced", "latency", "pinned"}
    assert resolve(None) is PRESETS["balanced"]
    for name, policy in PRESETS.items():
        assert resolve(name) is policy and resolve(policy) is policy and policy.name == name
    assert not PRESETS["pinned"].parks and all(PRESETS[name].parks for name in ("eco", "balanced", "latency"))


@pytest.mark.parametrize("name", ["", "fast", "Balanced", "balanced ", "eco,latency", "0"])
def test_a_name_that_is_no_preset(name: str) -> None:
    with pytest.raises(ValueError, match=r"policy=.*eco, balanced, latency, pinned") as caught:
        resolve(name)
    assert repr(name) in str(caught.value)


@pytest.mark.parametrize("name", ["fast", " ", "BALANCED"])
def test_a_bad_environment_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIOSPIN_POLICY", name)
    with pytest.raises(ValueError, match=r"AIOSPIN_POLICY=") as caught:
        aiospin.Queue(capacity=RING)
    assert repr(name) in str(caught.value)
    with ends(policy="eco") as (_, writer, _readers):  # an argument comes first
        assert writer._options.policy is PRESETS["eco"]


@pytest.mark.parametrize("name", ["", "eco", "pinned"])
def test_the_environment_chooses(name: str) -> None:
    program = """
        with aiospin.Queue() as queue, queue.reader(0) as reader:
            say(reader._options.policy.name)
    """
    with Program(program, environment={"AIOSPIN_POLICY": name}) as child:
        assert child.hear() == (name or "balanced")
        child.finish()


@pytest.mark.parametrize("policy", [*PRESETS, aiospin.WaitPolicy(minimum_us=5, maximum_us=5)])
def test_messages_pass_under_every_policy(policy: Any) -> None:
    with ends(policy=policy) as (_, writer, (reader,)):
        for number in range(50):
            writer.put(b"%d" % number)
            assert reader.get() == b"%d" % number
        with pytest.raises(TimeoutError):
            reader.get(timeout=0.005)


@pytest.mark.fallback
def test_the_fallback_parks_at_once() -> None:
    for policy in PRESETS.values():
        horizon = policy.horizon()
        horizon.observe(1.0)
        assert horizon.horizon_us(0.0) == 0


# --- the learned horizon, natively

waits = st.one_of(st.floats(0, 2), st.floats(2, 15), st.floats(15, 80), st.floats(80, 5000))
families = st.one_of(
    st.builds(periodic, waits, st.integers(1, 300)),
    st.builds(alternating, waits, waits, st.integers(2, 300)),
    st.builds(bursty, waits, waits, st.integers(1, 20), st.integers(1, 300)),
    st.builds(poisson, st.floats(0.5, 500), st.integers(1, 300), st.integers(0, 2**32)),
)
arbitrary = st.lists(waits, min_size=1, max_size=200)
checked = settings(max_examples=400, deadline=None, derandomize=True)


@pytest.mark.native
@checked
@given(sequence=families)
def test_at_most_twice_the_better_of_watching_and_parking(sequence: list[float]) -> None:
    """No start-up term: the first waits watch in place for as long as a park is assumed to cost."""
    assert Clocked(PARK).total(sequence) <= 2 * best_fixed(sequence) + 1e-6


@pytest.mark.native
@checked
@given(sequence=families, price=st.floats(PARK, 65))
def test_the_factor_where_a_park_costs_more_than_the_longest_wait_in_place(sequence: list[float], price: float) -> None:
    factor = max(2.0, 1 + price / IN_PLACE)
    assert Clocked(price).total(sequence) <= factor * best_fixed(sequence, price) + 4 * price


@pytest.mark.native
@pytest.mark.parametrize("price", [15.0, 40.0, 65.0])
@pytest.mark.parametrize("w", [0.5, 3.0, 10.0, 14.0, 25.0, 60.0, 200.0])
def test_a_steady_rhythm_is_learned(w: float, price: float) -> None:
    """After the start it costs what the better of the two costs, and the grace."""
    clocked = Clocked(price)
    clocked.total(periodic(w, 100))
    settled = clocked.total(periodic(w, 100))
    if abs(w - price) > 10:
        assert settled <= best_fixed(periodic(w, 100), price) + 100 * GRACE + 1e-6


@pytest.mark.native
@checked
@given(sequence=arbitrary)
def test_nothing_is_lost_by_more_than_a_park_a_wait(sequence: list[float]) -> None:
    """Whatever comes, a wait never costs more than watching for the ceiling and a park."""
    clocked = Clocked(PARK)
    assert all(clocked.wait(w) <= min(w, PARK) + PARK + GRACE for w in sequence)


@pytest.mark.native
@checked
@given(
    sequence=arbitrary,
    low=st.floats(0, 50),
    high=st.floats(0, 500),
    share=st.floats(0, 1),
    price=st.floats(0, 200),
)
def test_the_horizon_keeps_its_bounds(
    sequence: list[float], low: float, high: float, share: float, price: float
) -> None:
    high = low + high
    clocked = Clocked(price, minimum_us=low, maximum_us=high, core_share=share)
    for w in sequence:
        horizon = clocked.horizon.horizon_us(clocked.now)
        ceiling = high if high > 0 else clocked.horizon.park_cost_us
        assert horizon == 0 or min(low, 1) <= horizon <= max(low, ceiling)
        if share == 1 and low >= 1:
            assert horizon >= low
        clocked.wait(w)
        assert 15 <= clocked.horizon.park_cost_us <= 65


@pytest.mark.native
@pytest.mark.parametrize("preset", ["eco", "balanced", "latency"])
def test_a_cadence_of_five_milliseconds_parks(preset: str) -> None:
    clocked = Clocked(**tuning(preset))
    clocked.total(periodic(1.0, 100))
    clocked.total(periodic(5000.0, 20))
    before = clocked.watched
    clocked.total(periodic(5000.0, 100))
    assert clocked.watched - before <= 100 * GRACE


@pytest.mark.native
@settings(max_examples=50, deadline=None, derandomize=True)
@given(sequence=st.lists(st.floats(21, 400), min_size=50, max_size=400), share=st.sampled_from([0.05, 0.25, 0.5]))
def test_watching_keeps_to_its_share_of_a_core(sequence: list[float], share: float) -> None:
    """Beyond the 2 ms that it may run ahead, and the last watch; what is watched in place is not counted."""
    clocked = Clocked(minimum_us=400, maximum_us=400, core_share=share)
    for w in sequence:
        clocked.wait(w)
    assert clocked.spent <= share * clocked.now + 2000 + 400


@pytest.mark.native
def test_more_roles_than_cpus_watch_nothing() -> None:
    for preset in ("eco", "balanced", "latency"):
        clocked = Clocked(**tuning(preset))
        clocked.total(periodic(2.0, 100))
        clocked.horizon.cpus = 2
        clocked.horizon.seat(2)
        assert clocked.horizon.due and not clocked.horizon.crowded
        clocked.horizon.seat(3)
        assert clocked.horizon.crowded and not clocked.horizon.due
        assert clocked.horizon.horizon_us(clocked.now) == 0
        clocked.horizon.seat(2)
        assert not clocked.horizon.crowded


@pytest.mark.native
def test_pinned_never_parks() -> None:
    horizon = PRESETS["pinned"].horizon()
    for w in (1.0, 1e6, 1e9):
        horizon.observe(w)
        assert horizon.horizon_us(0.0) == math.inf


def tuning(preset: str) -> dict[str, Any]:
    policy = dataclasses.asdict(PRESETS[preset])
    del policy["name"]
    return policy
