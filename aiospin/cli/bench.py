"""`aiospin bench`: aiospin, what one would use instead, and the bare machine, on the same work, in one run.

Guarantee: when it ends, by Ctrl-C, SIGTERM and SIGHUP, too, no process, shared memory or file of it is left; what was
asked wrongly is named, with exit code 2, before anything is measured.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

from aiospin.cli.interrupt import ended_in_order
from aiospin.cli.streams import Stderr, tell, write_result

if TYPE_CHECKING:
    from aiospin.bench.contract import Subject
    from aiospin.bench.rounds import Cell
    from aiospin.bench.scenario import Scenario

BAR = 20
"""characters"""


class BadChoice(ValueError):
    """An option names what there is not."""


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "bench",
        help="measure aiospin beside what one would use instead",
        description="Measure aiospin, what one would use instead, and the bare machine, on the same work, in one run.",
    )
    parser.add_argument("--quick", action="store_true", help="a first look, in less than a minute")
    parser.add_argument("--scenario", action="append", metavar="NAMES", help="only these, by commas; may be repeated")
    parser.add_argument("--peers", action="append", metavar="NAMES", help="only peers whose names hold one of these")
    parser.add_argument(
        "--rounds", type=_positive, metavar="N", help="how often everything is played (quick 1 to 3, else 5)"
    )
    parser.add_argument(
        "--seconds", type=_seconds, metavar="S", help="for each figure in each round (quick 0.06, else 0.5)"
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument("--plot", metavar="DIR", help="draw the result there, as SVG and PNG (needs matplotlib)")
    parser.set_defaults(run=_run)


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value <= 20:
        raise argparse.ArgumentTypeError(f"{text!r} is not between 0 and 20 seconds")
    return value


def _run(args: argparse.Namespace) -> int:
    from aiospin import _policy
    from aiospin.bench.contract import Absent
    from aiospin.bench.subjects import load_subjects

    if sys.platform != "linux":
        return _fail(f"it needs Linux, and this is {sys.platform}", 1)
    try:
        scenarios = choose_scenarios(args.scenario)
        subjects = choose_peers(args.peers, load_subjects())
        if args.plot is not None:
            prepare_plots(args.plot)
        _policy.resolve(None)
    except (ValueError, Absent, OSError) as error:
        return _fail(str(error), 2)
    with ended_in_order():
        return _play(args, scenarios, subjects)


def _split(given: Sequence[str]) -> list[str]:
    return [name.strip() for names in given for name in names.split(",")]


def choose_scenarios(given: Sequence[str] | None) -> list[Scenario]:
    """Those that were named, in the order in which they are played. Raises BadChoice for what is none."""
    from aiospin.bench.scenarios import SCENARIOS

    if given is None:
        return list(SCENARIOS.values())
    names = set(_split(given))
    if unknown := sorted(names - SCENARIOS.keys()):
        raise BadChoice(f"--scenario: there is no {unknown[0]!r}; there are {', '.join(SCENARIOS)}")
    return [scenario for name, scenario in SCENARIOS.items() if name in names]


def choose_peers(given: Sequence[str] | None, subjects: dict[str, Subject]) -> list[Subject]:
    """aiospin itself, and the peers whose names hold what was given. Raises BadChoice for what none holds."""
    if given is None:
        return list(subjects.values())
    wanted = _split(given)
    peers = [name for name in subjects if not name.startswith("aiospin ")]
    for each in wanted:
        if not each or not any(each.lower() in name.lower() for name in peers):
            raise BadChoice(f"--peers: none is called {each!r}; there are {', '.join(peers)}")
    return [
        subject
        for name, subject in subjects.items()
        if name not in peers or any(each.lower() in name.lower() for each in wanted)
    ]


def prepare_plots(folder: str) -> None:
    """Makes the folder. Raises Absent without matplotlib, OSError where there can be no files."""
    from aiospin.bench.plot import need_matplotlib

    need_matplotlib()
    os.makedirs(folder, exist_ok=True)
    tempfile.TemporaryFile(dir=folder).close()


def _play(args: argparse.Namespace, scenarios: list[Scenario], chosen: list[Subject]) -> int:
    from dataclasses import replace

    from aiospin.bench import floors
    from aiospin.bench.document import Run, make_document
    from aiospin.bench.machine import describe_machine
    from aiospin.bench.rounds import FULL, QUICK, cells, play
    from aiospin.bench.table import table

    absent = {each.name: why for each in chosen if (why := each.missing()) is not None}
    subjects = [each for each in chosen if each.name not in absent]
    if why := floors.missing():
        absent |= dict.fromkeys(floors.FLOORS, why)
    pace = QUICK if args.quick else FULL
    if args.rounds is not None:
        pace = replace(pace, rounds=args.rounds, budget=None)
    if args.seconds is not None:
        pace = replace(pace, seconds=args.seconds)
    found = cells(scenarios, subjects, args.quick)
    machine, start = describe_machine(), time.monotonic()
    results, rounds = play(found, pace, Progress())
    run = Run(machine, pace.name, rounds, time.monotonic() - start)
    document = make_document(found, results, subjects, absent, run)
    if why := write_result(json.dumps(document) if args.json else table(document)):
        return _fail(why, 1)
    if args.plot is not None:
        from aiospin.bench.plot import draw

        for path in draw(document, args.plot):
            tell(f"aiospin bench: drew {path}")
    return 0


class Progress:
    """A bar in place on a terminal; elsewhere a line for each round and scenario. On stderr."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream: TextIO | Stderr = Stderr() if stream is None else stream
        self._terminal = self._stream.isatty()
        self._done = self._cells = self._rounds = self._number = 0
        self._scenario = ""

    def begin(self, number: int, rounds: int, cells: int) -> None:
        self._number, self._rounds, self._cells = number, rounds, cells
        self._done = 0
        self._scenario = ""

    def step(self, cell: Cell) -> None:
        """Says what is being played, and how far the run is."""
        if self._terminal:
            part = self._done / self._cells
            bar = ("#" * round(part * BAR)).ljust(BAR, "-")
            text = f"round {self._number}/{self._rounds} [{bar}] {cell.scenario.name}, {cell.point.label}: {cell.asked}"
            self._stream.write(f"\r\x1b[K{text[:79]}")
        elif cell.scenario.name != self._scenario:
            self._scenario = cell.scenario.name
            self._stream.write(f"aiospin bench: round {self._number} of {self._rounds}: {self._scenario}\n")
        self._stream.flush()
        self._done += 1

    def end(self) -> None:
        if self._terminal:
            self._stream.write("\r\x1b[K")
            self._stream.flush()


def _fail(message: str, code: int) -> int:
    tell(f"aiospin bench: {message}")
    return code
