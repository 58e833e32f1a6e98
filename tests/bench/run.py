"""The runner: plays the rounds of every scenario interleaved, and reports medians, spreads and ratios.

In each round every subject of the scenario plays once, one after the other (A B C, A B C, ...), each in fresh
processes, so that what the machine does meanwhile falls on all alike. A ratio is taken within a round, and its median
and extremes over the rounds are shown. A case that fails or exceeds its time is reported as such; the exit code is 0
all the same, since benchmarks report and tests decide.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .contract import Figures, Subject
from .machine import describe_machine
from .report import print_scenario
from .scenarios import SCENARIOS, Scenario
from .subjects import load_subjects

ROOT = Path(__file__).resolve().parents[2]
CASE_SECONDS = 90
"""how long a round of a case may take before it is ended; the cases' own alarms come first"""


@dataclass
class Played:
    """What the rounds of one subject gave; a round that failed left None, and the reason in `failure`."""

    rounds: list[Figures | None] = field(default_factory=list)
    failure: str | None = None


def play(scenario: Scenario, subject: str, quick: bool) -> Figures | str:
    """One round of one case in its own session of processes; its figures, or why there are none."""
    arguments = [scenario.name, subject, *(["--quick"] if quick else [])]
    figures: Figures | str = play_case("tests.bench.case", arguments, CASE_SECONDS)
    return figures


def play_case(module: str, arguments: Sequence[str], limit: float) -> Any:
    """What a module that is run in its own session of processes prints as JSON; or, as text, why there is none."""
    with subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as case:
        try:
            out, err = case.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            os.killpg(case.pid, signal.SIGKILL)
            case.communicate()
            return f"not done after {limit:.0f} s"
        except BaseException:
            os.killpg(case.pid, signal.SIGKILL)
            raise
    if case.returncode:
        lines = err.strip().splitlines()
        return lines[-1] if lines else f"exit code {case.returncode}"
    return json.loads(out)


def play_rounds(scenario: Scenario, subjects: Iterable[Subject], rounds: int, quick: bool) -> dict[str, Played]:
    played = {subject.name: Played() for subject in subjects if scenario.name in subject.cases}
    for number in range(rounds):
        for name, record in played.items():
            print(f"{scenario.name}: round {number + 1} of {rounds}: {name}", file=sys.stderr, flush=True)
            figures = play(scenario, name, quick)
            if isinstance(figures, str):
                record.failure = figures
                record.rounds.append(None)
            else:
                record.rounds.append(figures)
    return played


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description="Measure aiospin, its floors and peers.")
    parser.add_argument(
        "--scenario", action="append", choices=[s.name for s in SCENARIOS], help="only this (repeatable)"
    )
    parser.add_argument("--subject", action="append", metavar="NAME", help="only subjects whose name holds this")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="one tenth of the work: shows that it runs, not how fast")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout instead of tables")
    args = parser.parse_args(argv)

    subjects = [
        subject
        for name, subject in load_subjects().items()
        if not args.subject or any(part in name for part in args.subject)
    ]
    machine = describe_machine()
    if not args.json:
        for key, value in machine.items():
            print(f"{key}: {value}")
    results = {}
    for scenario in SCENARIOS:
        if args.scenario and scenario.name not in args.scenario:
            continue
        played = play_rounds(scenario, subjects, args.rounds, args.quick)
        results[scenario.name] = {
            name: {"rounds": record.rounds, "failure": record.failure} for name, record in played.items()
        }
        if not args.json:
            print_scenario(scenario, {name: (record.rounds, record.failure) for name, record in played.items()})
    if args.json:
        print(
            json.dumps({"machine": machine, "rounds": args.rounds, "quick": args.quick, "scenarios": results}, indent=1)
        )
    return 0
