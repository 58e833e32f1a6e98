"""When a worker that died gets a successor."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Restart:
    """When a worker that died gets a successor: after `first` seconds, each time `factor` times as long, at most
    `most`.

    An answered call counts as success, and the next death begins anew. After `attempts` deaths or failed starts in a
    row the rank is given up, and calls to it fail; None never gives up.
    """

    first: float = 0.1
    factor: float = 2.0
    most: float = 30.0
    attempts: int | None = 5

    def __post_init__(self) -> None:
        for name, least in (("first", 0.0), ("factor", 1.0), ("most", 0.0)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise TypeError(f"{name} must be a number, got {value!r}")
            if not math.isfinite(value) or value < least:
                raise ValueError(f"{name} must be finite and at least {least:g}, got {value!r}")
        if self.attempts is not None:
            if isinstance(self.attempts, bool) or not isinstance(self.attempts, int):
                raise TypeError(f"attempts must be a whole number or None, got {self.attempts!r}")
            if self.attempts < 0:
                raise ValueError(f"attempts must be 0 or more, got {self.attempts}")

    def delay(self, failures: int) -> float:
        """Seconds before the next start, after that many failures in a row."""
        try:
            return min(self.most, self.first * self.factor ** (failures - 1))
        except OverflowError:
            return self.most

    def goes_on(self, failures: int) -> bool:
        """Whether there is a next start after that many failures in a row."""
        return self.attempts is None or failures <= self.attempts
