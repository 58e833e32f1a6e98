"""The benchmarks still run: what they measure decides nothing, but a case that cannot play would be noticed late."""

from __future__ import annotations

import json

import pytest
from bench.contract import Figures
from bench.report import print_scenario
from bench.run import main
from bench.scenarios import SCENARIOS
from bench.subjects import load_subjects

pytestmark = pytest.mark.repository


def test_every_case_plays_a_scenario_and_every_reference_is_a_subject() -> None:
    subjects = load_subjects()
    played = {scenario for subject in subjects.values() for scenario in subject.cases}
    assert played == {scenario.name for scenario in SCENARIOS}
    for scenario in SCENARIOS:
        for reference in scenario.references:
            assert scenario.name in subjects[reference].cases


def test_the_runner_reports_figures_and_failures(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # It plays in the source tree, which has no extension unless it was built in place.
    monkeypatch.delenv("AIOSPIN_REQUIRE_EXTENSIONS", raising=False)
    asked = ["--quick", "--rounds", "1", "--json", "--scenario", "sync_pingpong", "--scenario", "async_pingpong"]
    assert main([*asked, "--subject", "aiospin"]) == 0
    report = json.loads(capfd.readouterr().out)
    assert {"cores", "kernel", "python", "aiospin"} <= report["machine"].keys()
    for played in report["scenarios"].values():
        for name, subject in played.items():
            assert subject["failure"] is None, name
            assert subject["rounds"][0]["p50_us"] > 0


def test_ratios_are_taken_within_a_round(capsys: pytest.CaptureFixture[str]) -> None:
    scenario = next(scenario for scenario in SCENARIOS if scenario.name == "throughput_sync")
    ours: list[Figures | None] = [{"per_s": 30.0}, None, {"per_s": 80.0}, {"per_s": 10.0}]
    pipe: list[Figures | None] = [{"per_s": 10.0}, {"per_s": 1.0}, {"per_s": 20.0}, {"per_s": 10.0}]
    print_scenario(scenario, {"ours": (ours, "it fell over"), "pipe": (pipe, None)})
    text = capsys.readouterr().out
    assert "30 (10..80)" in text
    assert "3 (1..4)" in text
    assert "1 of 4 rounds failed: it fell over" in text
