"""A peer process of a case: started fresh, bounded, its return value handed back.

Guarantee: the process is gone when the `with` ends, and ends by itself when its parent is killed: it is a daemon of
multiprocessing, and an alarm ends it after LIFETIME seconds whatever it does.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, Generic, TypeVar

LIFETIME = 60

T = TypeVar("T")
SPAWN = multiprocessing.get_context("spawn")


def _run(answer: Connection, target: Callable[..., Any], args: tuple[Any, ...]) -> None:
    signal.alarm(LIFETIME)
    answer.send(target(*args))


class Companion(Generic[T]):
    """`with Companion(target, *args) as peer: ...; peer.result()`."""

    def __init__(self, target: Callable[..., T], *args: Any) -> None:
        self._answer, theirs = SPAWN.Pipe(duplex=False)
        self._process = SPAWN.Process(target=_run, args=(theirs, target, args), daemon=True)
        self._theirs = theirs

    def __enter__(self) -> Companion[T]:
        self._process.start()
        self._theirs.close()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.join(5 if kind is None else 0)
        if self._process.exitcode is None:
            self._process.kill()
            self._process.join()
        self._answer.close()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def result(self) -> T:
        """What the peer's target returned. RuntimeError when it ended without returning."""
        try:
            value: T = self._answer.recv()
        except EOFError:
            self._process.join()
            raise RuntimeError(f"the peer ended with exit code {self._process.exitcode} and no result") from None
        return value
