"""`aiospin doctor`: what this machine offers for waiting, what aiospin made of it, and what will hurt.

Guarantee: exit code 1 when something will hurt, or the report could not be written; 2 for bad arguments, 0 otherwise.
No process that it started is left, by Ctrl-C, SIGTERM and SIGHUP, too.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from aiospin.cli.streams import tell, write_result

if TYPE_CHECKING:
    from aiospin.doctor.contest import Outcome
    from aiospin.doctor.fact import Fact, Section
    from aiospin.doctor.machine import Machine

SECONDS = 2.0
"""for each way to wait"""


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "doctor",
        help="tell what this machine offers, and what will hurt",
        description="Tell what this machine offers for waiting, what aiospin chose and why, and what will hurt.",
    )
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    parser.add_argument(
        "--measure-power",
        action="store_true",
        help="also measure each way to wait: watts where there is a meter, wake-up latency, CPU time",
    )
    parser.add_argument(
        "--seconds", type=_seconds, metavar="S", help=f"with --measure-power: for each way to wait ({SECONDS:g})"
    )
    parser.set_defaults(run=functools.partial(_run, parser=parser))


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value <= 600:
        raise argparse.ArgumentTypeError(f"{text!r} is not between 0 and 600 seconds")
    return value


def _run(args: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    if args.seconds is not None and not args.measure_power:
        parser.error("--seconds is for --measure-power")
    if sys.platform != "linux":
        return _fail(f"it needs Linux, and this is {sys.platform}")
    from aiospin.cli.interrupt import ended_in_order
    from aiospin.doctor.machine import Machine

    with ended_in_order():
        return examine(Machine(), (args.seconds or SECONDS) if args.measure_power else None, args.json)


def examine(machine: Machine, seconds: float | None, as_json: bool) -> int:
    """Survey, measure each way to wait for so many seconds unless None, and print; the exit code."""
    from aiospin._backend import rung
    from aiospin.doctor.contest import judge
    from aiospin.doctor.document import make_document
    from aiospin.doctor.survey import survey

    sections = survey(machine)
    outcome = None if seconds is None else _measure(machine, seconds)
    judged = [] if outcome is None else list(judge(outcome, rung()))
    document = make_document(sections, outcome, judged, rung())
    if why := write_result(json.dumps(document, indent=2) if as_json else _text(sections, outcome, judged)):
        return _fail(why)
    return 0 if document["verdict"] == "ok" else 1


def _measure(machine: Machine, seconds: float) -> Outcome:
    from aiospin.doctor.contest import contest
    from aiospin.doctor.meters import find_meter
    from aiospin.doctor.rungs import usable, verdicts

    return contest(usable(verdicts()), seconds, find_meter(machine), _tell)


def _tell(mode: str, number: int, of: int) -> None:
    tell(f"aiospin doctor: measuring {mode} ({number} of {of})")


def _text(sections: Sequence[Section], outcome: Outcome | None, judged: Sequence[Fact]) -> str:
    from aiospin._backend import rung
    from aiospin.doctor.power_table import power_table
    from aiospin.doctor.report import advice, report

    facts = [*(fact for section in sections for fact in section.facts), *judged]
    parts = [report(sections, sum(fact.verdict == "warn" for fact in facts))]
    if outcome is not None:
        parts += [power_table(outcome, rung()), ""]
    return "\n".join([*parts, *advice(facts)]).rstrip()


def _fail(message: str) -> int:
    tell(f"aiospin doctor: {message}")
    return 1
