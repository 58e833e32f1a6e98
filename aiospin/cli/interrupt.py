"""Signals as an orderly end: Ctrl-C that cancels one task and raises nothing in the middle of other code (`Interrupt`),
and SIGTERM and SIGHUP that raise as Ctrl-C does (`ended_in_order`).

Guarantee of `Interrupt`: between `with` and its end a SIGINT never raises; it is remembered in `raised`, and the task
that is in `cancel_here` is cancelled, at once or when it gets there. Where the `with` ends, after everything inside it
was cleaned up, KeyboardInterrupt is raised. Assumption: used in the main thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Generator
from types import FrameType, TracebackType
from typing import Any


class Interrupt:
    def __init__(self) -> None:
        self.raised = False
        self._target: tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]] | None = None

    def __enter__(self) -> Interrupt:
        self._before = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        signal.signal(signal.SIGINT, self._before)
        if self.raised and (kind is None or issubclass(kind, asyncio.CancelledError)):
            raise KeyboardInterrupt from None

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.raised = True
        if self._target is not None:
            loop, task = self._target
            loop.call_soon_threadsafe(task.cancel)

    @contextlib.contextmanager
    def cancel_here(self) -> Generator[None, None, None]:
        """Inside, a Ctrl-C (one that came before, too) cancels the current task."""
        task = asyncio.current_task()
        assert task is not None
        self._target = (asyncio.get_running_loop(), task)
        try:
            if self.raised:
                task.cancel()
            yield
        finally:
            self._target = None


@contextlib.contextmanager
def ended_in_order() -> Generator[None, None, None]:
    """What would kill this process at once ends it as Ctrl-C does, with the exit code that a shell would show."""

    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    heeded = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is not signal.SIG_IGN]
    before = [(number, signal.signal(number, leave)) for number in heeded]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)
