"""Measuring the ways to wait: with results and meters that the test plays, and in earnest, for a moment each."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from machines import Lab, assert_whole

import aiospin
from aiospin import lowlevel
from aiospin.doctor import contest as contest_module
from aiospin.doctor import waiter
from aiospin.doctor.contest import Outcome, Result, contest, figures, judge, measure
from aiospin.doctor.meters import Meter, find_meter
from aiospin.doctor.power_table import number, power_table
from aiospin.doctor.report import WIDTH
from aiospin.doctor.rungs import usable, verdicts
from aiospin.doctor.stand import BARE, Failed, Stand

pytestmark = pytest.mark.usefixtures("leaves_nothing")

ENERGY = "sys/class/powercap/intel-rapl:0/energy_uj"
SAID: dict[str, Any] = {
    "latencies_ns": list(range(1000, 101_000, 1000)),
    "wall_ns": 2_000_000_000,
    "cpu_ns": 500_000_000,
    "voluntary": 3000,
    "involuntary": 1000,
    "instructions": 8_000_000,
    "cycles": None,
    "uncounted": None,
}
NO_METER: tuple[Meter | None, str] = (None, "nothing has one")


def silent(mode: str, number: int, of: int) -> None:
    """No progress."""


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    lab = Lab(tmp_path)
    lab.write("sys/class/powercap/intel-rapl:0/name", "package-0")
    lab.write("sys/class/powercap/intel-rapl:0/max_energy_range_uj", 100_000_000)
    lab.write(ENERGY, 90_000_000)
    return lab


# what is made of it


def test_every_way_is_measured_in_its_turn_with_the_meter(lab: Lab) -> None:
    joules = {BARE: 5, "umwait": 7, "pause": 25, "park": 6, "busy poll": 31}
    used = 90_000_000
    told: list[tuple[str, int, int]] = []

    def play(mode: str, seconds: float, meter: Meter | None) -> Result:
        nonlocal used
        assert meter is not None
        meter.begin()
        used = (used + joules[mode] * 1_000_000) % 100_000_000
        lab.write(ENERGY, used)
        return Result(mode, watts=meter.watts(seconds), p50_us=1.0)

    outcome = contest(["umwait", "pause"], 2.0, find_meter(lab), lambda *each: told.append(each), play)
    assert (outcome.meter, outcome.no_meter) == ("RAPL (package-0)", None)
    assert {each.mode: each.watts for each in outcome.results} == {
        mode: pytest.approx(used / 2) for mode, used in joules.items()
    }
    assert told == [(mode, at, 5) for at, mode in enumerate(joules, 1)]


def test_without_a_meter_nobody_is_not_measured_and_it_is_said() -> None:
    outcome = contest(["pause"], 1.0, NO_METER, silent, lambda mode, seconds, meter: Result(mode))
    assert [each.mode for each in outcome.results] == ["pause", "park", "busy poll"]
    assert (outcome.meter, outcome.no_meter) == (None, "nothing has one")


@pytest.mark.parametrize("trouble", [Failed("its process ended with exit code 1"), OSError(24, "Too many open files")])
def test_one_way_that_fails_does_not_keep_the_others_from_it(trouble: Exception) -> None:
    def play(mode: str, seconds: float, meter: Meter | None) -> Result:
        if mode == "pause":
            raise trouble
        return Result(mode, p50_us=1.0)

    outcome = contest(["pause"], 1.0, NO_METER, silent, play)
    assert [each.failure is None for each in outcome.results] == [False, True, True]
    (fact,) = judge(outcome, "pause")
    assert_whole(fact)
    assert str(trouble) in str(fact.problem)


def test_figures_are_ranks_shares_and_rates() -> None:
    result = figures("pause", 12.5, SAID)
    assert (result.samples, result.p50_us, result.p99_us) == (100, 51, 100)
    assert (result.watts, result.cpu_share, result.switches_per_s) == (12.5, 0.25, 2000)
    assert (result.instructions_per_s, result.cycles_per_s) == (4_000_000, None)
    nothing = figures("pause", None, {**SAID, "latencies_ns": []})
    assert (nothing.samples, nothing.p50_us, nothing.p99_us) == (0, None, None)


def outcome_of(*results: Result, meter: str | None = None) -> Outcome:
    return Outcome(1.0, 0.5, meter, None if meter else "nothing has one", results)


def test_a_choice_that_is_slower_than_sleeping_hurts() -> None:
    results = Result("mwaitx", p50_us=40.0), Result("pause", p50_us=0.5), Result("park", p50_us=12.0)
    (fact,) = judge(outcome_of(*results), "mwaitx")
    assert_whole(fact)
    assert (fact.name, fact.verdict) == ("mwaitx", "warn")
    assert not list(judge(outcome_of(*results), "pause"))
    assert not list(judge(outcome_of(*results), "park"))
    assert not list(judge(outcome_of(Result("pause", p50_us=40.0)), "pause"))


def test_the_table_fits_and_shows_what_there_is() -> None:
    whole = Result("umwait", None, 123.456, 100, 0.5, 12345.6, 1.0, 1234.5, 2.5e9, 3e9)
    table = power_table(outcome_of(Result(BARE, watts=20.0), whole, meter="RAPL (package-0, package-1)"), "umwait")
    assert all(len(line) <= WIDTH for line in table.splitlines()), table
    assert "umwait *" in table and "123" in table and "2.5G" in table and f"{BARE}: nobody waits" in table
    bare = power_table(outcome_of(Result("pause", p50_us=1.0, uncounted="not allowed"), Result("park", "it broke")), "")
    assert "watts" not in bare and "instr/s" not in bare and BARE not in bare
    assert "meter: none: nothing has one" in bare
    assert "no instructions and cycles: not allowed" in bare
    assert "failed: it broke" in bare


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (0.0, "0"),
        (0.123456, "0.123"),
        (99.96, "100"),
        (1234.4, "1234"),
        (9999.0, "9999"),
        (12345.0, "12.3k"),
        (999_999.0, "1M"),
        (1_500_000.0, "1.5M"),
        (999_999_999.0, "1G"),
        (3.456e9, "3.46G"),
    ],
)
def test_numbers_of_three_digits(value: float | None, text: str) -> None:
    assert number(value) == text


# in earnest


@pytest.mark.parametrize("mode", [*usable(verdicts()), "park", "busy poll"])
def test_a_way_is_measured(mode: str) -> None:
    result = measure(mode, 0.1, None)
    assert (result.mode, result.failure, result.watts) == (mode, None, None)
    assert result.samples > 0 and result.p50_us is not None and result.p99_us is not None
    assert 0 < result.p50_us <= result.p99_us
    assert result.cpu_share is not None and result.cpu_share > 0
    assert result.switches_per_s is not None
    assert (result.instructions_per_s is None) == (result.uncounted is not None)


def test_nobody_is_measured_with_a_meter_that_moves(lab: Lab) -> None:
    class Moving(Lab):
        used = 0

        def number(self, path: str) -> int | None:
            Moving.used += 1_000_000 if path == ENERGY else 0
            return Moving.used if path == ENERGY else super().number(path)

    meter, _ = find_meter(Moving(lab.root))
    result = measure(BARE, 0.01, meter)
    assert result == Result(BARE, watts=result.watts)
    assert result.watts is not None and 0 < result.watts <= 100


def test_a_meter_is_looked_at_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    class Counting:
        name = "counting"
        looks = 0

        def begin(self) -> None:
            self.looks = 0

        def look(self) -> None:
            self.looks += 1

        def watts(self, seconds: float) -> float | None:
            return float(self.looks)

    monkeypatch.setattr(contest_module, "LOOK", 0.0)
    watts = measure(BARE, 0.01, Counting()).watts
    assert watts is not None and watts > 0


@pytest.mark.parametrize("mode", ["park", "busy poll", pytest.param("pause", marks=pytest.mark.native)])
@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, OSError])
def test_whatever_ends_a_measurement_ends_its_process(mode: str, error: type[BaseException]) -> None:
    pids: list[int | None] = []

    def interrupt() -> None:
        raise error

    with pytest.raises(error), Stand(mode) as stand:
        pids.append(stand.pid)
        stand.store(10.0, interrupt)
    (pid,) = pids
    assert pid is not None
    with pytest.raises(ProcessLookupError):  # reaped, too
        os.kill(pid, 0)


def test_an_interrupt_while_the_process_starts_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    pids: list[int | None] = []

    def interrupt(stand: Stand, *args: object) -> None:
        pids.append(stand.pid)
        raise KeyboardInterrupt

    monkeypatch.setattr(Stand, "_rest", interrupt)
    with pytest.raises(KeyboardInterrupt), Stand("park"):
        pass
    (pid,) = pids
    assert pid is not None
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_process_that_dies_is_said_to_have_died() -> None:
    with Stand("park") as stand:
        assert stand.pid is not None
        pid = stand.pid

        def kill() -> None:
            os.kill(pid, 9)

        with pytest.raises(Failed, match="was killed by SIGKILL"):
            stand.store(10.0, kill)


def test_a_process_that_cannot_begin_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIOSPIN_NO_EXTENSIONS", "perhaps")
    with pytest.raises(Failed, match="exit code 1: ValueError: AIOSPIN_NO_EXTENSIONS='perhaps'"), Stand("park"):
        pass


def test_a_process_that_never_starts_or_ends_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    with Stand("park") as stand:
        monkeypatch.setattr("aiospin.doctor.stand.PATIENCE", 0.01)
        monkeypatch.setattr(Stand, "_store", lambda *args: None)
        with pytest.raises(Failed, match="did not end within 0 s"):
            stand.finish()
    monkeypatch.setattr("aiospin.doctor.stand.PATIENCE", -1.0)
    with pytest.raises(Failed, match="did not start"), Stand("park"):
        pass


@pytest.mark.parametrize("call", ["os.ftruncate", "os.pipe2", "tempfile.TemporaryFile"])
def test_a_stand_that_cannot_be_made_leaves_nothing(monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    def refuse(*args: object) -> Any:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(call, refuse)
    (failed, *_) = contest([], 1.0, NO_METER, silent).results
    assert failed == Result("park", "[Errno 24] Too many open files")


# the child's own program


def on_a_page(play: Callable[[Any, Any], None]) -> None:
    page = bytearray(waiter.SIZE)
    play(page, memoryview(page).cast("Q"))


def test_a_child_whose_parent_is_gone_ends() -> None:
    on_a_page(lambda page, words: _assert_orphan(page, words))


def _assert_orphan(page: Any, words: Any) -> None:
    assert waiter.play(lambda number: False, page, words, parent=-1) == {}
    assert words[waiter.ACK // 8] == 1


def test_a_child_tells_its_waits_without_the_first_and_the_last() -> None:
    def play(page: Any, words: Any) -> None:
        numbers = iter([*range(2, 22), waiter.LAST])

        def wait(number: int) -> bool:
            assert words[waiter.ACK // 8] == number - 1
            lowlevel.store_word(page, next(numbers), offset=waiter.WORD)
            return True

        said = waiter.play(wait, page, words, os.getppid())
        assert len(said["latencies_ns"]) == 21 - 21 // waiter.WARM_UP - 1
        assert said["latencies_ns"] == sorted(said["latencies_ns"])
        assert said["wall_ns"] > 0
        assert json.loads(json.dumps(said)) == said

    on_a_page(play)


def test_no_way_waits_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rung's watch and a park come back to look after their parent; a busy poll counts its looks."""
    monkeypatch.setattr(waiter, "SLICE", 0.001)
    bell, rope = os.pipe2(os.O_NONBLOCK)
    page = bytearray(waiter.SIZE)
    words = memoryview(page).cast("Q")
    for mode in ("park", "busy poll", aiospin.rung()):
        wait = waiter._way(mode, page, words, bell)
        lowlevel.store_word(page, 4, offset=waiter.WORD)
        assert not wait(5)
        lowlevel.store_word(page, 5, offset=waiter.WORD)
        os.write(rope, b"\0")
        assert wait(5) and wait(4)
    os.close(bell)
    os.close(rope)
