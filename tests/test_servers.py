"""The comparison of transports still runs, and compares like with like: the same work, and ratios of one round."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from servers.scenarios import SCENARIOS
from servers.table import print_scenario
from servers.transports import TRANSPORTS
from servers.transports.contract import NoModel

pytestmark = pytest.mark.repository

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize("name", TRANSPORTS)
async def test_a_transport_brings_every_answer_to_its_caller(name: str, leaves_nothing: object) -> None:
    payloads = [bytes([first]) * (1 + 1000 * first) for first in range(40)]
    async with TRANSPORTS[name](2) as transport:
        assert len(transport.pids) == 2 and os.getpid() not in transport.pids
        answers = await asyncio.gather(*(transport.call(payload) for payload in payloads))
        large = bytes(9 << 20)
        assert await transport.call(large) == NoModel().answer(large)
    assert answers == [NoModel().answer(payload) for payload in payloads]


def test_the_comparison_plays_every_scenario() -> None:
    # It plays in the source tree, which has no extension unless it was built in place.
    environment = {name: value for name, value in os.environ.items() if name != "AIOSPIN_REQUIRE_EXTENSIONS"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.servers.calls", "--quick", "--json"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert {"cores", "cpu", "kernel", "python", "aiospin"} <= report["machine"].keys()
    (played,) = report["workers"].values()
    assert played.keys() == TRANSPORTS.keys()
    for rounds in played.values():
        for scenario in SCENARIOS:
            assert {scenario.figure, *scenario.beside} <= rounds[0][scenario.name].keys()


def test_ratios_are_taken_within_a_round(capsys: pytest.CaptureFixture[str]) -> None:
    scenario = next(scenario for scenario in SCENARIOS if scenario.name == "clients_1")

    def figures(per_s: float) -> dict[str, Any]:
        return {scenario.name: {"per_s": per_s, **dict.fromkeys(scenario.beside, 1.0)}}

    ours: list[dict[str, Any] | str] = [figures(30.0), "it fell over", figures(80.0), figures(10.0)]
    peer: list[dict[str, Any] | str] = [figures(10.0), figures(1.0), figures(20.0), figures(10.0)]
    print_scenario(scenario, ["executor", "mp_queue"], {"aiospin": ours, "executor": peer})
    text = capsys.readouterr().out
    assert "30 (10..80)" in text
    assert "3 (1..4)" in text
