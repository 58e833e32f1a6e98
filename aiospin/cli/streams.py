"""Standard streams that may be closed, full, or lead nowhere.

Guarantee: what is told on stderr and cannot be written is dropped: no progress line is worth the result. No descriptor
that a command opens has the number of a standard stream.
"""

from __future__ import annotations

import contextlib
import os
import sys


def keep_places() -> None:
    """Put something in the place of a standard stream that is closed, or a child would find our files there."""
    with contextlib.suppress(OSError):
        while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
            pass
        os.close(fd)


class Stderr:
    """stderr, for progress and complaints."""

    def isatty(self) -> bool:
        return sys.stderr is not None and sys.stderr.isatty()

    def write(self, text: str) -> None:
        """Write and flush. What cannot be written is dropped, with all that comes later."""
        if sys.stderr is None:  # closed when Python began; print() would take stdout
            return
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except (OSError, ValueError):
            with contextlib.suppress(OSError, ValueError):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, sys.stderr.fileno())  # or Python tries once more at its end, and fails
                os.close(nowhere)

    def flush(self) -> None:
        """Nothing is held back."""


def tell(text: str) -> None:
    """A line on stderr."""
    Stderr().write(text + "\n")


def write_result(text: str) -> str | None:
    """Print it on stdout; None, or why it could not be written."""
    try:
        print(text, flush=True)
    except OSError as error:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())  # or Python complains once more at its end
        os.close(nowhere)
        return f"the result could not be written: {error.strerror}"
    return None
