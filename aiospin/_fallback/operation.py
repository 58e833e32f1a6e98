"""Operation and Acquire: one attempt, repeated until it succeeds, as an awaitable and as a context manager.

Guarantee: nothing is claimed before the awaiting code really runs, so a cancel, a time-out or an exception loses
nothing; an await that is satisfied at once still lets the loop turn every 100 us.
Assumption: the endpoint's `_suspend` returns a future of the loop that drives the awaiting task.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any

from aiospin._fallback.ring import NOT_READY
from aiospin._fallback.timing import loop_is_due, loop_ran
from aiospin._finalizers import quiet_at_exit

if TYPE_CHECKING:
    from aiospin._fallback.endpoint import Attempt, Endpoint


class Operation:
    """A pending call of an endpoint. Await it once, or hand it to create_task, gather, wait_for, TaskGroup."""

    __slots__ = ("__weakref__", "_attempt", "_endpoint", "_steps", "_timeout", "_used")

    def __init__(self, endpoint: Endpoint, attempt: Attempt, timeout: float | None) -> None:
        self._used = False
        self._endpoint = endpoint
        self._attempt = attempt
        self._timeout = timeout
        self._steps: Generator[Any, Any, Any] | None = None

    def _use(self) -> None:
        if self._used:
            raise RuntimeError(f"this {type(self).__name__} was used already; call the endpoint again")
        self._used = True

    def _start(self) -> Generator[Any, Any, Any]:
        self._use()
        self._steps = steps = self._run()
        return steps

    def send(self, value: Any, /) -> Any:
        """Run on to the next suspension, or to StopIteration with the result."""
        return (self._steps or self._start()).send(value)

    def throw(self, *error: Any) -> Any:
        """Raise inside the await."""
        return (self._steps or self._start()).throw(*error)

    def close(self) -> None:
        """End it here. Nothing was claimed, so nothing is lost."""
        self._used = True
        if self._steps is not None:
            self._steps.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._start()

    def __iter__(self) -> Operation:
        return self

    def __next__(self) -> Any:
        return self.send(None)

    def _finish(self, result: Any) -> Any:
        return result

    def _run(self) -> Generator[Any, Any, Any]:
        endpoint, attempt, timeout = self._endpoint, self._attempt, self._timeout
        endpoint._require()
        deadline = None if timeout is None else time.monotonic() + timeout
        suspended = False
        endpoint._line_up(self)
        try:
            if not endpoint._must_wait(attempt):
                # Others that let the loop turn came first, and are resumed first.
                if endpoint._passing or (loop_is_due() and endpoint._ready()):
                    endpoint._passing += 1
                    try:
                        yield None
                    finally:
                        endpoint._passing -= 1
                    loop_ran()
                if not endpoint._must_wait(attempt):
                    result = attempt()
                    if result is not NOT_READY:
                        endpoint._at_once += 1
                        return self._finish(result)
            while True:
                remaining = None if deadline is None else deadline - time.monotonic()
                if timeout == 0 or (remaining is not None and remaining <= 0):
                    raise endpoint._late(timeout)
                future = endpoint._suspend(self, remaining)
                if not suspended:
                    suspended = True
                    endpoint._queued += 1
                woken = yield from future.__await__()
                loop_ran()
                if not woken:
                    raise endpoint._late(timeout)
                result = attempt()
                if result is not NOT_READY:
                    return self._finish(result)
        finally:
            attempt.finish()
            endpoint._step_out(self)
            if suspended:
                endpoint._queued -= 1
                endpoint._leave(self)

    @quiet_at_exit
    def __del__(self) -> None:
        if not getattr(self, "_used", True):
            warnings.warn(f"{self!r} was never awaited", RuntimeWarning, source=self, stacklevel=2)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self._attempt.what} of the {self._endpoint.role_name}>"


class Acquire(Operation):
    """What acquire_read() and acquire_write() return: await it, or enter it with `with` or `async with`."""

    __slots__ = ("_keep", "_slot")

    def __init__(self, endpoint: Endpoint, attempt: Attempt, timeout: float | None) -> None:
        super().__init__(endpoint, attempt, timeout)
        self._keep = False
        self._slot: Any = None

    def _finish(self, result: Any) -> Any:
        if self._keep:
            self._slot = result.__enter__()
        return result

    def _take_slot(self) -> Any:
        slot, self._slot = self._slot, None
        return slot

    def __enter__(self) -> Any:
        self._use()
        self._keep = True
        return self._finish(self._endpoint._wait(self._attempt, self._timeout))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._take_slot()._exit_sync(kind is not None)

    def __aenter__(self) -> Acquire:
        self._keep = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._take_slot()._exit_async(kind is not None)
