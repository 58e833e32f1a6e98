"""Where a storm's decisions come from: one seed, one script per role and incarnation, one throw of dice per operation.

Guarantee: operation number n of an incarnation is the same in every run with the same seed, whatever came before it;
what the machine makes of it (who is faster, what a cancel hits) is not.
Assumption: none; imported by every part of a storm.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

_BITS = 256  # far more than one operation throws


class Dice:
    """The throws of one operation, drawn at once: how many of them are used changes nothing for the next operation."""

    def __init__(self, word: int) -> None:
        self._word = word

    def below(self, limit: int) -> int:
        """From 0 to limit - 1."""
        self._word, thrown = divmod(self._word, limit)
        return thrown

    def one_in(self, many: int) -> bool:
        return self.below(many) == 0

    def pick(self, choices: Sequence[T]) -> T:
        return choices[self.below(len(choices))]

    def moment(self, longest: float) -> float:
        """Seconds: nothing, very little, or up to `longest`."""
        return self.pick((0.0, 1e-5, 1e-4, longest * self.below(1000) / 1000, longest * self.below(100) / 1000))


class Script:
    """What one incarnation of a role does, operation by operation."""

    def __init__(self, seed: int, name: str, incarnation: int) -> None:
        self._chance = random.Random(f"{seed}/{name}/{incarnation}")

    def next(self) -> Dice:
        return Dice(self._chance.getrandbits(_BITS))
