"""`python -m tests.servers.calls`: what the way to the workers and back costs, without a model.

Rounds are interleaved: in each round every transport plays once, one after the other, in fresh processes, so that
what the machine does meanwhile falls on all alike. A ratio is taken within a round; medians and extremes are over the
rounds. It measures and reports; the exit code says only whether everything could be played.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

from ..bench.machine import describe_machine
from ..bench.run import play_case
from .scenarios import REFERENCES, SCENARIOS
from .table import print_scenario
from .transports import TRANSPORTS


def play(transport: str, workers: int, seconds: float, idle_seconds: float) -> dict[str, Any] | str:
    """One transport's figures in one round, or why there are none."""
    arguments = [transport, "--workers", str(workers), "--seconds", str(seconds), "--idle-seconds", str(idle_seconds)]
    figures: dict[str, Any] | str = play_case("tests.servers.case", arguments, 60 + 20 * seconds + 2 * idle_seconds)
    return figures


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.servers.calls", description="Compare ways to call workers.")
    parser.add_argument("--transport", action="append", choices=list(TRANSPORTS), help="only this (repeatable)")
    parser.add_argument("--workers", type=int, action="append", help="worker processes (repeatable); 1 and 2")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement")
    parser.add_argument("--idle-seconds", type=float, default=4.0)
    parser.add_argument("--quick", action="store_true", help="one short round: shows that it runs, not how fast")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout instead of tables")
    args = parser.parse_args(argv)
    if args.quick:
        args.rounds, args.seconds, args.idle_seconds, args.workers = 1, 0.2, 1.0, args.workers or [1]

    machine = describe_machine()
    if not args.json:
        for key, value in machine.items():
            print(f"{key}: {value}")
    failures = 0
    groups = {}
    for workers in args.workers or [1, 2]:
        rounds: dict[str, list[dict[str, Any] | str]] = {name: [] for name in args.transport or TRANSPORTS}
        for number in range(args.rounds):
            for name, played in rounds.items():
                print(f"workers {workers}, round {number + 1} of {args.rounds}: {name}", file=sys.stderr, flush=True)
                played.append(play(name, workers, args.seconds, args.idle_seconds))
        groups[workers] = rounds
        if not args.json:
            print(f"\n{workers} worker{'s' * (workers > 1)}")
            for scenario in SCENARIOS:
                print_scenario(scenario, REFERENCES, rounds)
        for name, played in rounds.items():
            for failure in (outcome for outcome in played if isinstance(outcome, str)):
                failures += 1
                print(f"{name}: a round failed: {failure}", file=sys.stderr)
    if args.json:
        print(json.dumps({"machine": machine, "seconds": args.seconds, "workers": groups}, indent=1))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
