"""A mutant: one plausible slip in the native sources, and what must notice it.

Guarantee: applying fails unless each text occurs exactly once, so a mutant that the sources have outgrown is an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

ORDERS = "orders"  # the agreement of sources and litmus tests: tests/model/test_orders.py


@dataclass(frozen=True)
class Case:
    """A doctest case, or several by a pattern, in one file under tests/native."""

    file: str
    pattern: str
    repeats: int = 1  # how often it may be run until it notices: for what only a coincidence shows

    def __str__(self) -> str:
        return f"{self.file}: {self.pattern}"


@dataclass(frozen=True)
class Mutant:
    """`edits` to `file`, each a text and its replacement. Every one of `killers` must notice it, each by itself."""

    name: str
    file: str
    edits: Sequence[tuple[str, str]]
    killers: Sequence[Case | str]
    quick: bool = False  # one of the few that every run of CI tries

    def apply(self, text: str) -> str:
        """The mutated text. ValueError when a text is not there exactly once."""
        for old, new in self.edits:
            if text.count(old) != 1:
                raise ValueError(f"{self.name}: occurs {text.count(old)} times in {self.file}: {old!r}")
            text = text.replace(old, new)
        return text


def mutant(name: str, file: str, old: str, new: str, *killers: Case | str, quick: bool = False) -> Mutant:
    """A mutant of one edit."""
    return Mutant(name, file, [(old, new)], killers, quick)
