"""Time-outs of the Python half: None for ever, 0 to look once, else seconds."""

from __future__ import annotations

import time


class Deadline:
    """Begins when it is made. TypeError and ValueError name what is not a time-out."""

    def __init__(self, timeout: float | None) -> None:
        if timeout is not None:
            if isinstance(timeout, bool) or not isinstance(timeout, (int, float)):
                raise TypeError(f"timeout must be a number of seconds or None, not {timeout!r}")
            if not timeout >= 0:
                raise ValueError(f"timeout must be 0 or more seconds, or None, not {timeout!r}")
        self.timeout = timeout
        self._at = None if timeout is None else time.monotonic() + timeout

    def remaining(self) -> float | None:
        """Seconds left, at least 0; None for no end."""
        return None if self._at is None else max(0.0, self._at - time.monotonic())

    def check(self, what: str) -> None:
        """TimeoutError once the time is over."""
        if self.remaining() == 0.0:
            raise TimeoutError(f"{what} within {self.timeout!r} s")
