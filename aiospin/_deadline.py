"""Time-outs of the Python half: None for ever, 0 to look once, else seconds."""

from __future__ import annotations

import time


def require_seconds(name: str, value: object) -> None:
    """TypeError or ValueError for what is no time to wait."""
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be a number of seconds or None, not {value!r}")
    if not value >= 0:
        raise ValueError(f"{name} must be 0 or more seconds, or None, not {value!r}")


class Deadline:
    """Begins when it is made. TypeError and ValueError name what is not a time-out."""

    def __init__(self, timeout: float | None) -> None:
        require_seconds("timeout", timeout)
        self.timeout = timeout
        self._at = None if timeout is None else time.monotonic() + timeout

    def remaining(self) -> float | None:
        """Seconds left, at least 0; None for no end."""
        return None if self._at is None else max(0.0, self._at - time.monotonic())

    def check(self, what: str) -> None:
        """TimeoutError once the time is over."""
        if self.remaining() == 0.0:
            raise TimeoutError(f"{what} within {self.timeout!r} s")
