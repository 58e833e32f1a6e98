"""The book of a load: every request that was sent, what became of it, and what must not have.

Guarantee: `complaints` is empty exactly when every request was either answered once, with its own name and the right
label, or refused once, in so many words.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

REFUSALS = (503, 504)
"""what a server says that will not, or did not in time"""


@dataclass
class Entry:
    """One request."""

    label: str
    """what the right answer says"""
    outcomes: list[str] = field(default_factory=list)


class Ledger:
    """Used from one event loop."""

    def __init__(self) -> None:
        self._entries: list[Entry] = []
        self._strange: list[str] = []
        self.took_ns: list[int] = []
        """of each request that was answered"""
        self.refused: Counter[int] = Counter()
        self.answered = 0
        self._last_answer = time.monotonic()
        self._longest_gap = 0.0

    @property
    def asked(self) -> int:
        """Requests sent."""
        return len(self._entries)

    def ask(self, label: str) -> int:
        """Enter a request; its number."""
        self._entries.append(Entry(label))
        return len(self._entries) - 1

    def answer(self, number: int, label: str, took_ns: int | None) -> None:
        """An answer that carries this number came; `took_ns` is None when nobody was waiting for it any more."""
        if not 0 <= number < len(self._entries):
            self._strange.append(f"an answer carries the number {number}, which was never sent")
            return
        entry = self._entries[number]
        entry.outcomes.append("answered" if label == entry.label else f"answered {label!r} for {entry.label!r}")
        if took_ns is not None:
            self.answered += 1
            self.took_ns.append(took_ns)
            self._longest_gap, self._last_answer = self.longest_gap, time.monotonic()

    def refuse(self, number: int, status: int) -> None:
        """The server said no to the request on whose connection this came."""
        self._entries[number].outcomes.append("refused")
        self.refused[status] += 1

    def fail(self, number: int, why: str) -> None:
        """No answer, or one that is neither an answer nor a refusal."""
        self._entries[number].outcomes.append(f"failed: {why}")

    def strange(self, what: str) -> None:
        """Something came that belongs to no request."""
        self._strange.append(what)

    @property
    def longest_gap(self) -> float:
        """Seconds without any answer, at most so far."""
        return max(self._longest_gap, time.monotonic() - self._last_answer)

    @property
    def failures(self) -> Counter[str]:
        """Why requests failed, and how many each."""
        return Counter(
            outcome.removeprefix("failed: ")
            for entry in self._entries
            for outcome in entry.outcomes
            if outcome.startswith("failed: ")
        )

    def complaints(self) -> list[str]:
        """What must not have happened, a line each."""
        found = list(self._strange)
        for number, entry in enumerate(self._entries):
            if not entry.outcomes:
                found.append(f"request {number} was lost: nothing came for it")
            elif len(entry.outcomes) > 1:
                found.append(f"request {number} ended {len(entry.outcomes)} times: {', '.join(entry.outcomes)}")
            elif entry.outcomes[0] not in ("answered", "refused"):
                found.append(f"request {number} {entry.outcomes[0]}")
        return found


def shortened(complaints: Sequence[str], most: int = 10) -> list[str]:
    """The first of them, and how many more there are."""
    more = len(complaints) - most
    return [*complaints[:most], *([f"and {more} more"] if more > 0 else [])]
