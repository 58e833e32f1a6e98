"""Binary relations over the events 0..n-1 of one execution, as rows of bits: immutable, and quick.

Guarantee: every operation returns a new relation over the same events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Relation:
    """`rows[a]` has bit b when a is related to b. `|`, `&`, `-` as of sets; `a >> b` composes; `~` inverts."""

    rows: tuple[int, ...]

    @staticmethod
    def of(events: int, pairs: Iterable[tuple[int, int]]) -> Relation:
        """Make a relation of pairs."""
        rows = [0] * events
        for a, b in pairs:
            rows[a] |= 1 << b
        return Relation(tuple(rows))

    @staticmethod
    def where(events: int, test: Callable[[int, int], bool]) -> Relation:
        """Make the relation of all pairs that pass the test."""
        return Relation.of(events, ((a, b) for a in range(events) for b in range(events) if test(a, b)))

    @staticmethod
    def on(events: int, test: Callable[[int], bool]) -> Relation:
        """Make the identity on the events that pass: `[S]` of the cat language."""
        return Relation(tuple(1 << a if test(a) else 0 for a in range(events)))

    def __or__(self, other: Relation) -> Relation:
        return Relation(tuple(a | b for a, b in zip(self.rows, other.rows, strict=True)))

    def __and__(self, other: Relation) -> Relation:
        return Relation(tuple(a & b for a, b in zip(self.rows, other.rows, strict=True)))

    def __sub__(self, other: Relation) -> Relation:
        return Relation(tuple(a & ~b for a, b in zip(self.rows, other.rows, strict=True)))

    def __rshift__(self, other: Relation) -> Relation:
        composed = []
        for row in self.rows:
            reached = 0
            while row:
                lowest = row & -row
                reached |= other.rows[lowest.bit_length() - 1]
                row ^= lowest
            composed.append(reached)
        return Relation(tuple(composed))

    def __invert__(self) -> Relation:
        return Relation.of(len(self.rows), ((b, a) for a, b in self.pairs()))

    def __bool__(self) -> bool:
        return any(self.rows)

    def pairs(self) -> Iterable[tuple[int, int]]:
        """Every related pair."""
        for a, row in enumerate(self.rows):
            for b in range(len(self.rows)):
                if row >> b & 1:
                    yield a, b

    def optional(self) -> Relation:
        """Either equal or related: `r?`."""
        return Relation(tuple(row | 1 << a for a, row in enumerate(self.rows)))

    def closure(self) -> Relation:
        """One or more steps: `r+`."""
        rows = list(self.rows)
        for middle in range(len(rows)):
            bit, onward = 1 << middle, rows[middle]
            if onward:
                for a, row in enumerate(rows):
                    if row & bit:
                        rows[a] = row | onward
                onward = rows[middle]
        return Relation(tuple(rows))

    def is_irreflexive(self) -> bool:
        """Whether nothing is related to itself."""
        return not any(row >> a & 1 for a, row in enumerate(self.rows))

    def is_acyclic(self) -> bool:
        """Whether no chain of steps leads back to where it began."""
        return self.closure().is_irreflexive()
