"""The book of a turmoil: what was asked, how it ended, and whether that may be, given what the workers wrote down.

Guarantee: `judge` raises Violation for a call that ran more often than it may, for an answer of a call that never ran,
for a wrong answer, and for an end that nothing in the call explains.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass

MAX_DELIVERIES = 2


class Violation(AssertionError):
    """A promise of worker groups was broken."""


@dataclass
class Entry:
    """One call."""

    number: int
    kind: str
    """"one", "all" or "stream"."""
    rank: int | str
    act: str
    delivery: str
    size: int
    timed: bool = False
    cancelled: bool = False
    ending: str = ""
    """"result", or the name of the exception's type."""
    text: str = ""

    def payload(self) -> bytes:
        """What it sends, and must get back."""
        return random.Random(self.number).randbytes(self.size)

    def describe(self) -> str:
        return (
            f"call {self.number} ({self.kind} of {self.rank}, {self.act}, {self.delivery}): {self.ending} {self.text}"
        )


class Ledger:
    """All calls of one turmoil."""

    def __init__(self, size: int) -> None:
        self.entries: list[Entry] = []
        self._size = size

    def open(self, chance: random.Random) -> Entry:
        """Enter a call that the dice choose."""
        kind = chance.choices(("one", "all", "stream"), (80, 10, 10))[0]
        act = chance.choices(("return", "dawdle", "raise", "kill", "leave", "exit"), (70, 20, 7, 1, 1, 1))[0]
        entry = Entry(
            number=len(self.entries) + 1,
            kind=kind,
            rank="everybody" if kind == "all" else chance.choice(("any", "any", *range(self._size))),
            act=act,
            delivery=chance.choice(("at_most_once", "at_least_once")),
            size=chance.choice((0, 10, 100, 5000, 20000)),
        )
        self.entries.append(entry)
        return entry

    @property
    def endings(self) -> Counter[str]:
        return Counter(entry.ending for entry in self.entries)

    def judge(self, runs: list[str]) -> None:
        """`runs` are the workers' lines: the call's number, and the process that ran it."""
        executions: dict[int, list[int]] = {}
        for line in runs:
            number, pid = map(int, line.split())
            executions.setdefault(number, []).append(pid)
        for entry in self.entries:
            self._judge_one(entry, executions.pop(entry.number, []))
        if executions:
            raise Violation(f"executions of calls that were never made: {executions}")

    def _judge_one(self, entry: Entry, pids: list[int]) -> None:
        if not entry.ending:
            raise Violation(f"{entry.describe()}never ended")
        again = entry.delivery == "at_least_once" and entry.kind != "stream"
        places = self._size if entry.kind == "all" else 1
        if len(pids) > places * (MAX_DELIVERIES if again else 1):
            raise Violation(f"{entry.describe()}, and it ran {len(pids)} times")
        if len(set(pids)) < len(pids):
            raise Violation(f"{entry.describe()}, and one process ran it twice: {pids}")
        if entry.ending == "result" and len(pids) < places:
            raise Violation(f"{entry.describe()}, and it ran {len(pids)} times only")
        if entry.ending == "result" and entry.act not in ("return", "dawdle"):
            raise Violation(f"{entry.describe()}, though there can be none")
        allowed = {"result", "WorkerDied"}
        if entry.act == "raise":
            allowed.add("Refused")
        if entry.timed:
            allowed.add("TimeoutError")
        if entry.cancelled:
            allowed.add("CancelledError")
        if entry.ending not in allowed:
            raise Violation(f"{entry.describe()}, which nothing explains")
