"""Sequences of true waits for tests of the horizon, and what a policy pays for them.

The model is the ski rental of native/wait/policy.h: watching costs its time, a park costs the price of one wake-up. A
wait of w that watches for at most H costs w if w <= H, else H + PARK. As in native/bindings/sync_wait.cpp H is the
largest of the first GRACE, the horizon, and, if recent waits were short, the longest wait in place.
"""

from __future__ import annotations

import random
from typing import Any

from aiospin import _backend

GRACE = 2.0  # microseconds: watched before anything is asked
PARK = 15.0  # microseconds: the price that a Horizon assumes until it has seen a park


def periodic(w: float, count: int) -> list[float]:
    return [w] * count


def alternating(short: float, long: float, count: int) -> list[float]:
    return [short, long] * (count // 2)


def bursty(short: float, long: float, burst: int, count: int) -> list[float]:
    return [long if number % (burst + 1) == burst else short for number in range(count)]


def poisson(mean: float, count: int, seed: int) -> list[float]:
    chance = random.Random(seed)
    return [chance.expovariate(1 / mean) for _ in range(count)]


class Clocked:
    """A Horizon under a clock of its own: as the ladder uses it, without a real wait."""

    def __init__(self, price: float = PARK, **tuning: Any) -> None:
        defaults = {"minimum_us": 0.0, "maximum_us": 0.0, "inline_us": 20.0, "core_share": 1.0, "parks": True}
        self.horizon = _backend.core.Horizon(**{**defaults, **tuning})
        self.horizon.cpus = 64
        self.price = price
        self.now = 0.0
        self.watched = 0.0
        self.spent = 0.0  # of the budget
        self.parks = 0

    def wait(self, w: float) -> float:
        """One true wait of w; what it cost."""
        horizon = GRACE
        in_place = 0.0
        if w > GRACE:
            in_place = min(20.0, self.horizon.park_cost_us) if self.horizon.due else 0.0
            horizon = max(GRACE, in_place, self.horizon.horizon_us(self.now))
        watched = min(w, horizon)
        self.now += watched
        if watched > max(GRACE, in_place):
            self.horizon.spend(watched - in_place, self.now)
            self.spent += watched - in_place
        self.watched += watched
        cost = watched
        if w > horizon:
            self.parks += 1
            self.now += w - watched
            self.horizon.observe_park(self.price)
            cost += self.price
        self.horizon.observe(w)
        return cost

    def total(self, waits: list[float]) -> float:
        return sum(map(self.wait, waits))


def best_fixed(waits: list[float], price: float = PARK) -> float:
    """The better of always watching and always parking."""
    return min(sum(waits), price * len(waits))
