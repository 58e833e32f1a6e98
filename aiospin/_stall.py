"""A wait that has become long tells its story, in one log line, again at doubling intervals.

Guarantee: the line is formatted at once and keeps nothing alive; it names roles, pids and cursors and never payload.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterable, Mapping

from aiospin._statistics import Statistics

_log = logging.getLogger("aiospin")


class Stall:
    """The clock of one endpoint's waits: `over` when one ends, `due` now and then while one lasts.

    Waits that are over within a second need not say so: the endpoint's cursor has moved since.
    """

    def __init__(self, after: float) -> None:
        self._after = after
        self._began: float | None = None
        self._cursor = -1
        self._next = after

    def over(self) -> None:
        """The wait has ended."""
        self._began = None
        self._next = self._after

    def waited(self, cursor: int) -> float:
        """Seconds since this was asked first in the current wait, which stands at that cursor."""
        now = time.monotonic()
        if cursor != self._cursor:
            self.over()
            self._cursor = cursor
        if self._began is None:
            self._began = now
        return now - self._began

    def due(self, waited: float) -> bool:
        """Whether a wait of that many seconds should be told now; the next time is after twice as many."""
        if waited < self._next:
            if waited < self._after:
                self._next = self._after  # a new wait
            return False
        self._next = 2 * waited
        return True


def tell(role_name: str, cursor: int, statistics: Statistics, peers: Mapping[str, str], waited: float) -> None:
    """Log who waits where for how long, and how each peer stands."""
    fields: Iterable[str] = (
        f"role={_word(role_name)}",
        f"pid={os.getpid()}",
        f"cursor={cursor}",
        f"published={statistics.published}",
        f"held={statistics.leases}",
        *(f"{_word(name)}={_word(state)}" for name, state in peers.items()),
        *(f"lag_{rank}={lag}" for rank, lag in enumerate(statistics.lag) if lag),
        f"waited_s={waited:.1f}",
    )
    _log.warning(f"stalled: {' '.join(fields)}")


def _word(text: str) -> str:
    return text.replace(" ", "_")
