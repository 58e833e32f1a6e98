"""Calls on their way: what was asked, of whom, how often it was handed out, and where its answer goes.

Guarantee: a call ends once, with a result, an error, or by being given up; whatever comes for it later is dropped.
"""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from aiospin import _loop
from aiospin.workers._envelope import Kind, pack
from aiospin.workers._options import Options


class Sink(Protocol):
    """Where answers go."""

    @property
    def done(self) -> bool:
        """Whether nobody waits any more."""
        ...

    @property
    def keeps(self) -> bool:
        """Whether what comes now may lie here for a while, and so must not take up room in a ring."""
        ...

    def part(self, value: Any) -> None:
        """One of many."""
        ...

    def result(self, value: Any) -> None:
        """The answer, or the end of the parts."""
        ...

    def fail(self, error: BaseException) -> None:
        """The end, an error."""
        ...

    def give_up(self) -> None:
        """Nobody waits any more."""
        ...


class Answer:
    """A single answer, awaited through `future`."""

    def __init__(self, future: asyncio.Future[Any], *, keeps: bool = False) -> None:
        self.future = future
        self.keeps = keeps

    @property
    def done(self) -> bool:
        """Answered, failed or given up."""
        return self.future.done()

    def part(self, value: Any) -> None:
        """Of a single answer there are no parts."""
        raise TypeError("a part came for a call that is not streamed")

    def result(self, value: Any) -> None:
        """The answer."""
        if not self.future.done():
            self.future.set_result(value)

    def fail(self, error: BaseException) -> None:
        """An error instead."""
        if not self.future.done():
            self.future.set_exception(error)

    def give_up(self) -> None:
        """Nobody waits any more."""
        self.future.cancel()


class Parts:
    """Answers in a row, taken one by one with `take`."""

    def __init__(self) -> None:
        self._ready: collections.deque[Any] = collections.deque()
        self._over = False
        self._error: BaseException | None = None
        self._waiter: asyncio.Future[Any] | None = None

    @property
    def done(self) -> bool:
        """All are here."""
        return self._over

    @property
    def keeps(self) -> bool:
        """Nobody has taken the one before."""
        return bool(self._ready)

    def part(self, value: Any) -> None:
        """One more."""
        self._ready.append(value)
        self._wake()

    def result(self, value: Any) -> None:
        """That was the last."""
        self._over = True
        self._wake()

    def fail(self, error: BaseException) -> None:
        """No more, because of an error."""
        if not self._over:
            self._over, self._error = True, error
            self._wake()

    def give_up(self) -> None:
        """Nobody takes any more."""
        self._over = True
        self._ready.clear()

    async def take(self) -> Any:
        """The next part. StopAsyncIteration after the last, or what ended them."""
        while not self._ready:
            if self._error is not None:
                raise self._error
            if self._over:
                raise StopAsyncIteration
            self._waiter = _loop.here().future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        return self._ready.popleft()

    def _wake(self) -> None:
        if self._waiter is not None:
            _loop.wake(self._waiter)


@dataclass(eq=False, slots=True)
class Call:
    """One request to one worker."""

    id: int
    name: str
    body: bytes
    buffers: Sequence[Any]
    sink: Sink
    options: Options
    rank: int | None = None
    """The worker that was asked for; None for whichever."""
    flags: int = 0
    deadline_ns: int = 0
    deliveries: int = 0
    handed_over_at: float = 0.0
    """By time.perf_counter."""
    given_up: bool = False
    ended: bool = False
    link: Any = None
    """The incarnation of a worker that has it; None while it waits for one."""
    timers: Sequence[asyncio.TimerHandle] = ()
    """What is to happen if it does not end."""
    _pieces: list[Any] | None = None

    def pieces(self) -> list[Any]:
        """The message that asks for it."""
        if self._pieces is None:
            self._pieces = pack(
                Kind.CALL,
                self.id,
                self.name.encode(),
                self.body,
                self.buffers,
                flags=self.flags,
                deadline_ns=self.deadline_ns,
            )
        return self._pieces

    def end(self) -> None:
        """The worker is done with it, or it will never get there. It holds nothing any more."""
        self.ended = True
        self.link, self.body, self.buffers, self._pieces = None, b"", (), None
        for timer in self.timers:
            timer.cancel()
