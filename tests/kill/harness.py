"""Plays many cells in several processes at once, and counts: what `.ci/kill` runs.

Guarantee: a failed cell is printed with its text and the command that plays it again; the exit status says whether any
failed, or whether a named seam has no cell.
Assumption: both backends are there. Cells share nothing but the machine.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import queue
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import cells
import estates
import seams
from matrix import BACKENDS, Outcome, play
from scene import ASLEEP, END, Cell
from world import Crew

_TELL_EVERY = 2000  # cells
_TRIES = 3  # for a step that depends on who is faster


def _work(tasks: Any, results: Any) -> None:
    with Crew(BACKENDS) as crew:
        while (task := tasks.get()) is not None:
            results.put(_one(crew, task))


def _one(crew: Crew, task: Any) -> Any:
    if isinstance(task, cells.Run):
        return task, cells.list_steps(crew, task)
    return task, again(crew, task)


def again(crew: Crew, cell: Cell) -> Outcome:
    """Play a cell, some times over if the victim came to the end without its step."""
    for _ in range(_TRIES):
        outcome = (estates.play if cell.plot.startswith(estates.PREFIX) else play)(crew, cell)
        if outcome.failure or outcome.reached == cell.step:
            break
    return outcome


class Workers:
    """Processes that play cells, each with zygotes of its own."""

    def __init__(self, count: int) -> None:
        context = multiprocessing.get_context("fork")
        self._tasks: Any = context.Queue()
        self._results: Any = context.Queue()
        self._workers = [context.Process(target=_work, args=(self._tasks, self._results)) for _ in range(count)]
        for worker in self._workers:
            worker.start()

    def play(self, tasks: Sequence[Any]) -> Iterator[Any]:
        """Each task with what came of it, as they come."""
        for task in tasks:
            self._tasks.put(task)
        for _ in tasks:
            while True:
                try:
                    yield self._results.get(timeout=5)
                    break
                except queue.Empty:
                    dead = [worker.pid for worker in self._workers if not worker.is_alive()]
                    assert not dead, f"workers {dead} are gone"

    def close(self) -> None:
        """Let them end."""
        for _ in self._workers:
            self._tasks.put(None)
        for worker in self._workers:
            worker.join()


class Tally:
    """What came of the cells so far."""

    def __init__(self) -> None:
        self.tried = self.passed = 0
        self.failed: list[str] = []
        self.unreached: list[str] = []
        self.by: Counter[tuple[str, str]] = Counter()
        self.notices: Counter[tuple[str, str]] = Counter()
        self.unheard = 0  # deaths that a look has found although there was a pidfd
        self.whole = self.unrung = 0  # cells played to their end, and waits in them that nothing but a look has ended

    def count(self, outcome: Outcome) -> None:
        """Count a cell, and print it if it failed."""
        cell = outcome.cell
        self.tried += 1
        if outcome.failure is not None:
            self.failed.append(str(cell))
            print(f"FAILED {cell}\n{outcome.failure}\n  again: .ci/kill '{cell}'", flush=True)
            return
        self.passed += 1
        if outcome.reached != cell.step:
            self.unreached.append(str(cell))
        for dimension in ("plot", "backend", "way", "backing", "others", "manner"):
            self.by[dimension, getattr(cell, dimension)] += 1
        self.by["step", cell.step if cell.step in (END, ASLEEP) else cell.by] += 1
        self.notices.update(outcome.notices)
        self.unheard += outcome.unheard
        if cell.step == END:
            self.whole += 1
            self.unrung += outcome.unrung

    def doubts(self) -> list[str]:
        """What no single cell shows: somebody may look in the very moment in which a bell is rung, but not often."""
        told, late = self.notices["pidfd", "pidfd"], self.notices["pidfd", "lock"] + self.unheard
        found = []
        if late > 5 + told / 20:
            found.append(f"{late} deaths were noticed by a look although there was a pidfd, of {told} with one")
        if self.unrung > 5 + self.whole / 10:
            found.append(f"{self.unrung} waits in {self.whole} whole cells were ended by a look, and by no bell")
        return found

    def print(self) -> None:
        """The counts."""
        print(f"  deaths told to who had a pidfd: {self.notices['pidfd', 'pidfd']} by it, ", end="")
        print(f"{self.notices['pidfd', 'lock']} by the lock, {self.unheard} by a look; to who had none: ", end="")
        print(sum(count for (by, _), count in self.notices.items() if by == "lock"))
        print(f"  waits that only a look has ended: {self.unrung}, in {self.whole} cells without an untimely end")
        for dimension in dict.fromkeys(key for key, _ in self.by):
            counts = ", ".join(f"{name} {count}" for (key, name), count in sorted(self.by.items()) if key == dimension)
            print(f"  by {dimension}: {counts}")
        for text in self.unreached:
            print(f"  not reached again, and killed at the end instead: {text}")
        print(f"cells: {self.tried} tried, {self.passed} passed")


def main(arguments: Sequence[str] | None = None) -> int:
    """Play what the command line asks for; returns the exit status."""
    parser = argparse.ArgumentParser(prog=".ci/kill", description="Kill writers, readers and owners at every step.")
    parser.add_argument("cell", nargs="*", help="play these cells only")
    parser.add_argument("--long", action="store_true", help="every cell, instead of each seam and each line once")
    parser.add_argument("--jobs", type=int, default=(os.cpu_count() or 1) + 2, help="how many at a time")
    options = parser.parse_args(arguments)
    begun, tally = time.monotonic(), Tally()
    workers = Workers(1 if options.cell else options.jobs)
    try:
        if options.cell:
            _count(tally, workers.play([Cell.parse(text) for text in options.cell]))
            tally.print()
            return bool(tally.failed)
        absent = _find_and_play(tally, workers, options.long)
    finally:
        workers.close()
    tally.print()
    print(f"in {time.monotonic() - begun:.0f} s")
    for text in tally.failed:
        print(f"failed: .ci/kill '{text}'")
    for text in tally.doubts():
        print(f"DOUBTFUL: {text}")
    return bool(tally.failed or absent or tally.doubts())


def _find_and_play(tally: Tally, workers: Workers, everything: bool) -> list[str]:
    found: dict[cells.Run, list[str]] = {}
    for run, (steps, outcomes) in workers.play(cells.runs(BACKENDS)):
        found[run] = steps
        for outcome in outcomes:
            tally.count(outcome)
    absent = [
        f"{name} ({backend})"
        for backend in BACKENDS
        for name in seams.missing(
            backend, [(run.plot, step) for run, steps in found.items() if run.backend == backend for step in steps]
        )
    ]
    for name in absent:
        print(f"NO CELL for the seam {name}")
    owned: dict[Cell, Sequence[str]] = {}
    for cell, outcome in workers.play(estates.listings()):
        owned[cell] = tuple(dict.fromkeys(outcome.steps))
        tally.count(outcome)
    chosen = cells.seam_cells(found)
    chosen += cells.all_cells(found) if everything else cells.line_cells(found)
    chosen += estates.all_cells(owned) if everything else estates.line_cells(owned)
    steps = sum(map(len, found.values())) + sum(map(len, owned.values()))
    print(f"{len(seams.SEAMS)} named seams, {steps} steps in {len(found) + len(owned)} dry runs", flush=True)
    _count(tally, workers.play(list(dict.fromkeys(chosen))))
    return absent


def _count(tally: Tally, results: Iterable[Any]) -> None:
    for _, outcome in results:
        tally.count(outcome)
        if tally.tried % _TELL_EVERY == 0:
            print(f"  {tally.tried} tried, {len(tally.failed)} failed", flush=True)


if __name__ == "__main__":
    sys.exit(main())
