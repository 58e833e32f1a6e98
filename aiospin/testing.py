"""Seams for tests of code that waits: stop a wait at a stage and do something there, instead of sleeping and hoping.

inline      the loop's own thread is about to watch in place (native backend)
monitor     the waiter thread is watching (native backend)
parked      the wait has announced itself and sleeps on its bell
notified    the wait was answered, and its task has not run yet
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from typing import Any, Final

from aiospin import _backend, _seams

__all__ = ["STAGES", "at_stages"]

STAGES: Final = ("inline", "monitor", "parked", "notified")


@contextlib.contextmanager
def at_stages(callback: Callable[[str, Any], None]) -> Generator[None]:
    """Call `callback(stage, operation)` whenever an awaited call reaches a stage, in the thread of its event loop.

    What the callback raises propagates into the wait. One hook per process at a time: RuntimeError for a second.
    """
    if _seams.stage is not None:
        raise RuntimeError("another at_stages() is active in this process")
    _seams.stage = callback
    if _backend.name == "native":
        _backend.core.set_inline_hook(callback)
    try:
        yield
    finally:
        _seams.stage = None
        if _backend.name == "native":
            _backend.core.set_inline_hook(None)
