"""Processes that one starts: Ctrl-C is for the parent and must not hit a child before it ignores that; how they ended.

Guarantee: no signal handler of the parent is touched, and no Ctrl-C is lost.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Generator


@contextlib.contextmanager
def sigint_blocked() -> Generator[None, None, None]:
    """What is started inside inherits the block; a Ctrl-C that comes meanwhile is served afterwards.

    multiprocessing's resource tracker unblocks it when it is started: let it run before.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ignore_sigint() -> None:
    """In a child that was started while it was blocked: from here on it is ignored, and no longer blocked."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def how_it_ended(exit_code: int | None) -> str:
    """Of multiprocessing's exit codes: "was killed by SIGKILL", "ended with exit code 1"."""
    if exit_code is None or exit_code >= 0:
        return f"ended with exit code {exit_code}"
    try:
        return f"was killed by {signal.Signals(-exit_code).name}"
    except ValueError:  # the real-time ones have no names
        return f"was killed by signal {-exit_code}"
