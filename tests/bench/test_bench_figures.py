"""From recorded samples to figures, tables and pictures: every scenario's arithmetic, on numbers written down here."""

from __future__ import annotations

import json
from typing import Any

import pytest

from aiospin.bench import samples, table
from aiospin.bench.contract import Plan
from aiospin.bench.document import Run, make_document
from aiospin.bench.pace import fitting, stamp_of, stamped
from aiospin.bench.rounds import Answers, Cell, cells, played
from aiospin.bench.scenario import Point, Scenario
from aiospin.bench.scenarios import SCENARIOS, broadcast, crowd, fan_in, storm
from aiospin.bench.subjects import load_subjects

SUBJECTS = load_subjects()
ANY = Point("any", 1)


def evaluate(name: str, record: dict[str, Any], point: Point = ANY) -> dict[str, float]:
    return SCENARIOS[name].evaluate(record, point)


# ---- samples


def test_ranks_are_nearest_and_leave_the_warm_up_out() -> None:
    figures = samples.ranked([9e9] * 200 + [1000.0 * n for n in range(1, 1801)])
    assert figures == {"p50_us": 901.0, "p99_us": 1783.0, "p999_us": 1799.0}


def test_a_rank_needs_samples_behind_it() -> None:
    assert samples.ranked([2000.0] * 12) == {"p50_us": 2.0}
    assert samples.ranked([2000.0] * 120).keys() == {"p50_us", "p99_us"}
    assert samples.ranked([]) == {}
    assert samples.ranked([5000.0], "last_") == {"last_p50_us": 5.0}


def test_a_curve_has_a_value_for_each_rank() -> None:
    curve = samples.curve([1000.0 * n for n in range(1000)])
    assert len(curve) == len(samples.RANKS)
    assert curve == sorted(curve)
    assert curve[0] == 100.0
    assert curve[-1] == 999.0
    assert samples.curve([]) == []


def test_one_way_is_half_of_a_round_trip() -> None:
    assert samples.halves([0, 10, 30]) == [5.0, 10.0]


def test_ratios_are_taken_within_a_round() -> None:
    ours = [{"x": 30.0}, None, {"x": 80.0}, {"x": 10.0}, {"y": 1.0}]
    theirs = [{"x": 10.0}, {"x": 1.0}, {"x": 20.0}, {"x": 10.0}, {"x": 5.0}]
    assert samples.ratios(ours, theirs, "x") == [1.0, 3.0, 4.0]
    assert samples.ratios([{"x": 1.0}], [{"x": 0.0}], "x") == []


def test_the_middle_is_that_of_the_rounds_that_have_it() -> None:
    assert samples.middle([{"x": 1.0}, {"x": 9.0}, {"y": 0.0}, {"x": 2.0}], "x") == 2.0
    assert samples.middle([{}], "x") is None


def test_a_stamp_comes_out_as_it_went_in() -> None:
    assert stamp_of(stamped(123456789012345, bytes(56))) == 123456789012345
    assert len(stamped(1, bytes(56))) == 64


def test_counts_fit_a_time_within_bounds() -> None:
    assert fitting(1.0, 0.01, 10, 1000) == 100
    assert fitting(1.0, 1.0, 10, 1000) == 10
    assert fitting(1.0, 0.0, 10, 1000) == 1000


# ---- scenarios

LATENCY = {
    "one_way_ns": [4000] * 200,
    "round_ns": [9000] * 200,
    "cpu_ns": 1_000_000,
    "wall_ns": 50_000_000,
    "messages": 200,
}


def test_latency() -> None:
    figures = evaluate("latency", LATENCY)
    assert figures == {"p50_us": 4.0, "p99_us": 4.0, "round_us": 9.0, "cpu_s_per_million": 5.0, "cpu_percent": 2.0}


def test_cpu_looks_at_the_same_record() -> None:
    assert evaluate("cpu", LATENCY) == {"cpu_s_per_million": 5.0, "cpu_percent": 2.0}
    assert evaluate("cpu", {"one_way_ns": [1], "round_ns": [1]}) == {}


def test_broadcast_counts_the_slowest_reader_of_each_message() -> None:
    assert broadcast.last([[1, 5, 3], [2, 4, 9]]) == [2, 5, 9]
    figures = evaluate("broadcast", {"last_ns": [7000] * 100, "publish_ns": [500] * 100})
    assert figures["last_p50_us"] == 7.0
    assert figures["publish_p50_us"] == 0.5


def test_throughput() -> None:
    figures = evaluate("throughput", {"messages": 500, "wall_ns": 250_000_000}, Point("1 MB", 1e6))
    assert figures == {"per_s": 2000.0, "gb_per_s": 2.0}


def test_batch() -> None:
    assert evaluate("batch", {"messages": 6400, "wall_ns": 1_000_000}) == {"per_s": 6.4e6}


def test_a_wake_up_of_many_members_is_charged_by_the_message() -> None:
    figures = evaluate("members", {"one_way_ns": [30_000] * 200, "cpu_ns": 10_000_000})
    assert figures == {"p50_us": 30.0, "p99_us": 30.0, "cpu_us": 50.0}


def test_fan_in_takes_messages_in_the_order_of_sending() -> None:
    assert fan_in.in_turn([[1, 4], [2, 5], [3, 6]]) == [1, 2, 3, 4, 5, 6]
    figures = evaluate("fan-in", {"messages": 800, "wall_ns": 1_000_000_000, "one_way_ns": [3000] * 160})
    assert figures == {"per_s": 800.0, "p50_us": 3.0, "p99_us": 3.0}


def test_idle() -> None:
    figures = evaluate("idle", {"cpu_ns": 20_000_000, "wall_ns": 2_000_000_000, "slept": 6, "preempted": 4})
    assert figures == {"cpu_percent": 1.0, "wakeups_per_s": 3.0, "switches_per_s": 5.0}


def test_lag_counts_every_late_timer() -> None:
    record = {"idle_ns": [100_000] * 99 + [300_000], "busy_ns": [90_000_000], "messages": 10, "wall_ns": 100_000_000}
    figures = evaluate("lag", record)
    assert figures == {"lag_p99_us": 90_000.0, "idle_p99_us": 300.0, "over_idle_us": 89_700.0, "per_s": 100.0}


def test_a_storm_tells_what_was_lost_and_what_came_twice() -> None:
    assert storm.missed(6, [0, 1, 3, 3, 5]) == {"lost": 2.0, "twice": 1.0, "sent": 6.0}
    assert evaluate("storm", {"sent": 3, "received": [0, 1, 2], "cancelled": 4}) == {
        **{"lost": 0.0, "twice": 0.0, "sent": 3.0},
        "cancelled": 4.0,
    }


def test_a_crowd_is_all_its_pairs() -> None:
    stamps = [[0, 1000, 3000], [0, 2000, 4000]]
    assert crowd.together(stamps) == [500.0, 1000.0, 1000.0, 1000.0]
    assert crowd.rate([0, 500_000_000, 1_000_000_000]) == 4.0
    figures = evaluate("crowd", {"one_way_ns": [2000] * 100, "rates": [3.0, 4.0]})
    assert figures == {"p50_us": 2.0, "per_s": 7.0}


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=lambda scenario: scenario.name)
def test_a_scenario_is_whole(scenario: Scenario) -> None:
    assert any(point.quick for point in scenario.points)
    assert len({point.label for point in scenario.points}) == len(scenario.points)
    assert scenario.played_by is None or scenario.points == SCENARIOS[scenario.played_by].points
    shown = scenario.figures[: scenario.columns]
    assert all(len(figure.heading) < table.NUMBER for figure in shown)


def test_a_plan_has_room_for_what_is_under_way() -> None:
    assert Plan(64).room == 1 << 20
    assert Plan(64 << 20).room > 3 * (64 << 20)


# ---- what is played


def test_subjects_that_do_not_fit_are_not_asked() -> None:
    subjects = [SUBJECTS["Pipe"], SUBJECTS["stream asyncio"]]
    asked = {cell.asked for cell in cells([SCENARIOS["storm"]], subjects, False)}
    assert asked == {"stream asyncio"}


def test_a_quick_run_leaves_points_out() -> None:
    labels = {cell.point.label for cell in cells([SCENARIOS["latency"]], [SUBJECTS["Pipe"]], True)}
    assert "no gap" in labels
    assert "100 ms" not in labels


def test_a_view_is_played_only_without_what_it_looks_at() -> None:
    subjects = [SUBJECTS["Pipe"]]
    both = cells([SCENARIOS["latency"], SCENARIOS["cpu"]], subjects, False)
    assert {cell.scenario.name for cell in played(both)} == {"latency"}
    alone = cells([SCENARIOS["cpu"]], subjects, False)
    assert played(alone) == alone


# ---- the table


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (0.0, "0"),
        (0.0581, "0.0581"),
        (0.21, "0.210"),
        (4.444, "4.44"),
        (33.54, "33.5"),
        (142.2, "142"),
        (4209.0, "4209"),
        (12_345.0, "12.3k"),
        (128_000.0, "128k"),
        (11_670_000.0, "11.7M"),
        (282_000_000.0, "282M"),
        (-1965.4, "-1965"),
        (0.0004, "0.0004"),
    ],
)
def test_a_number_is_short(value: float | None, text: str) -> None:
    assert table.number(value) == text
    assert len(text) < table.NUMBER


@pytest.mark.parametrize(
    ("found", "text"),
    [
        ([], ""),
        ([54.1], "54.1"),
        ([2.4, 2.5, 2.9], "2.50 (2.4..2.9)"),
        ([0.036, 0.04, 0.05], "1/25 (20..28)"),
        ([138.0, 150.0], "144 (138..150)"),
        ([0.0, 0.05], "0.0250 (0..0.0500)"),
        ([0.0], "0"),
    ],
)
def test_a_ratio_shows_its_spread(found: list[float], text: str) -> None:
    assert table.ratio(found) == text
    assert len(text) <= table.RATIO


def document(**changes: Any) -> dict[str, Any]:
    """A run of two rounds in which aiospin took 1 and 2 us, a Pipe ten times as long, and mp.Queue failed once."""
    subjects = [SUBJECTS["aiospin sync"], SUBJECTS["Pipe"], SUBJECTS["mp.Queue"]]
    latency = SCENARIOS["latency"]
    found = [Cell(latency, latency.points[3], name) for name in ("C pipe + epoll", *(each.name for each in subjects))]
    given: dict[str, list[Any]] = {
        "C pipe + epoll": [{"p50_us": 0.5}, {"p50_us": 0.5}],
        "aiospin sync": [{"p50_us": 1.0, "p99_us": 3.0}, {"p50_us": 2.0, "p99_us": 5.0}],
        "Pipe": [{"p50_us": 10.0}, {"p50_us": 20.0}],
        "mp.Queue": [None, {"p50_us": 40.0}],
    }
    results = {
        cell.key: Answers(
            given[cell.asked], [[1.0] * len(samples.RANKS)], "it fell over" if None in given[cell.asked] else None
        )
        for cell in found
    }
    machine = {
        **{"cpu": "A CPU", "cores": 2, "kernel": "6.1", "python": "CPython 3.11.7", "aiospin": "0.1.0"},
        **{"backend": "native", "rung": "pause", "policy": "balanced", "load": 0.1},
    }
    run = Run(machine, "quick", 2, 12.34)
    return {**make_document(found, results, subjects, {"iceoryx2": "iceoryx2 is not installed"}, run), **changes}


def test_the_table_holds_what_the_document_does() -> None:
    text = table.table(document())
    lines = text.splitlines()
    assert max(map(len, lines)) <= table.WIDTH
    assert "skipped: iceoryx2: iceoryx2 is not installed" in lines
    assert "A CPU, 2 cores, Linux 6.1" in lines
    assert "2 rounds (quick) in 12 s; load before: 0.10" in lines
    (pipe,) = (line for line in lines if line.startswith("Pipe"))
    assert pipe.split() == ["Pipe", "15", "-", "-", "30", "(20..40)", "10", "(10..10)"]
    (ours,) = (line for line in lines if line.startswith("aiospin sync"))
    assert ours.split() == ["aiospin", "sync", "1.50", "4", "-", "3", "(2..4)"]
    assert "mp.Queue: 1 of 2 rounds failed: it fell over" in text


def test_the_document_is_json_and_says_how_it_was_made() -> None:
    found = json.loads(json.dumps(document()))
    assert found["format"] == 1
    assert found["rounds"] == 2
    point = found["scenarios"]["latency"]["points"][0]
    assert point["floor"] == "C pipe + epoll"
    assert point["subjects"]["C pipe + epoll"]["kind"] == "floor"
    assert point["subjects"]["mp.Queue"]["rounds"][0] is None
    assert len(point["subjects"]["Pipe"]["curve"]) == len(found["ranks"])
