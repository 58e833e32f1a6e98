"""Whose turn it is on an endpoint: one at a time, across threads.

Guarantee: a turn that was taken is given up exactly once. Assumption: whoever waits for it may block its thread.
"""

from __future__ import annotations

import threading


class Turn:
    """A lock that knows its holder's thread, so that a thread is told when it would wait for itself."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread = 0

    def taken(self) -> bool:
        """Somebody holds it now."""
        return self._lock.locked()

    def try_take(self) -> bool:
        """Take it if nobody has it."""
        if self._lock.acquire(False):
            self._thread = threading.get_ident()
            return True
        return False

    def mine(self) -> bool:
        """This thread took it."""
        return self._lock.locked() and self._thread == threading.get_ident()

    def take(self, timeout: float | None) -> bool:
        """Wait for it. False when the time ran out."""
        if not self._lock.acquire(timeout=-1 if timeout is None else min(timeout, threading.TIMEOUT_MAX)):
            return False
        self._thread = threading.get_ident()
        return True

    def give(self) -> None:
        """Give it up, from any thread."""
        self._thread = 0
        self._lock.release()
