"""What happened lately: latencies of the last seconds, and how many answers a second there are.

Guarantee: memory is bounded, whatever the rate.
"""

from __future__ import annotations

import collections
import math
import time
from collections.abc import Callable, Sequence

SECONDS = 10
_SAMPLES = 4096
_GAPS = 64


class Recent:
    """Answers of the last `SECONDS`."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()
        self._last = self._began
        self._gaps: collections.deque[float] = collections.deque(maxlen=_GAPS)
        self._counts: collections.deque[tuple[int, int]] = collections.deque(maxlen=SECONDS + 1)
        self._latencies: collections.deque[tuple[float, float]] = collections.deque(maxlen=_SAMPLES)

    def add(self, latency: float) -> None:
        """One more answer, after that many seconds."""
        now = self._clock()
        # Since this one came, or the one before it was answered, the server was busy.
        self._gaps.append(min(now - self._last, latency))
        self._last = now
        second = int(now)
        if self._counts and self._counts[-1][0] == second:
            self._counts[-1] = (second, self._counts[-1][1] + 1)
        else:
            self._counts.append((second, 1))
        self._latencies.append((now, latency))

    def rate(self) -> float:
        """Answers a second."""
        now = self._clock()
        span = min(SECONDS, now - self._began)
        return sum(count for second, count in self._counts if second > now - SECONDS - 1) / max(span, 1.0)

    def latencies(self, seconds: float = 5.0) -> Sequence[float]:
        """Those of the last `seconds`, sorted; the newest few thousand where there were more."""
        since = self._clock() - seconds
        return sorted(latency for at, latency in self._latencies if at >= since)

    def seconds_for(self, pending: int, oldest: float) -> int:
        """When that many will probably have been answered: whole seconds, from 1 to 60.

        Reckoned from how long the last answers took while there was something to do, so that idle hours do not count.
        `oldest` is how long one of the pending has waited already: while nothing is answered, the estimate grows.
        """
        pace = sum(self._gaps) / len(self._gaps) if self._gaps else 0.0
        silent = min(self._clock() - self._last, oldest)
        return min(60, max(1, math.ceil(max(pending * pace, silent))))


def quantile(ordered: Sequence[float], share: float) -> float | None:
    """The value below which that share lies. None of nothing."""
    if not ordered:
        return None
    return ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)]
