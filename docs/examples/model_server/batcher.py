"""Dynamic batching: single items go in, batches go out, and each item gets its own answer.

While a worker has nothing to do, what is there goes out at once, divided among those that are idle: waiting would only
make it late. While all are busy, a batch is sent when it is full or its oldest item has waited `max_wait` seconds for
company; one more batch for each worker lies ready at its door, and what comes then makes the next ones fuller.

Guarantee: every item that was accepted ends once: with its result, with an error, or cancelled by whoever waits. What
happens to one item of a batch touches no other: one that is cancelled or late is answered for alone, and when a batch
fails, its items are tried again one by one, so that the failure stays with the item that causes it.
Assumption: one event loop. `run` gives one result for each item, and may be called again with the same item.
"""

from __future__ import annotations

import asyncio
import collections
import itertools
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")

Run = Callable[[Sequence[T], "float | None"], Awaitable[Sequence[R]]]
"""Takes a batch and the `time.monotonic()` at which nobody waits for it any more, or None."""


class Overloaded(Exception):
    """The item was refused, since `pending` others wait already."""

    def __init__(self, pending: int) -> None:
        super().__init__(pending)
        self.pending = pending

    def __str__(self) -> str:
        return f"{self.pending} files are waiting already"


class Draining(Exception):
    """The item was refused, since no more are taken."""


@dataclass(frozen=True)
class Done(Generic[R]):
    """The result of an item, and in how large a batch it was got."""

    result: R
    batch: int


@dataclass(eq=False)
class _Item(Generic[T, R]):
    value: T
    deadline: float | None
    answer: asyncio.Future[Done[R]]
    since: float = field(default_factory=time.monotonic)

    @property
    def waits(self) -> bool:
        return not self.answer.done()


class Batcher(Generic[T, R]):
    """Made and used in one event loop."""

    def __init__(self, run: Run[T, R], *, max_batch: int, max_wait: float, max_pending: int, workers: int) -> None:
        for name, value in (("max_batch", max_batch), ("max_pending", max_pending), ("workers", workers)):
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if not 0 <= max_wait < float("inf"):
            raise ValueError(f"max_wait must be a number of seconds, got {max_wait}")
        self._run = run
        self._max_batch = max_batch
        self._max_wait = max_wait
        self._max_pending = max_pending
        self._workers = workers
        self._waiting: collections.deque[_Item[T, R]] = collections.deque()
        self._under_way: dict[asyncio.Task[None], list[_Item[T, R]]] = {}
        self._alarm: asyncio.TimerHandle | None = None
        self._soon: asyncio.Handle | None = None
        self._draining = False
        self._pending = 0
        self._loop = asyncio.get_running_loop()
        self.on_batch: Callable[[int], None] = lambda size: None
        """Called with the size of each batch that is sent."""

    @property
    def pending(self) -> int:
        """Items that wait for their answers, in batches under way too."""
        return self._pending

    @property
    def oldest(self) -> float:
        """For how many seconds the one that came first has waited; 0 when there is none."""
        items = itertools.chain(self._waiting, *self._under_way.values())
        return max((time.monotonic() - item.since for item in items if item.waits), default=0.0)

    @property
    def waiting(self) -> int:
        """Items that are in no batch yet."""
        return sum(item.waits for item in self._waiting)

    async def submit(self, value: T, deadline: float | None = None) -> Done[R]:
        """The answer for one item. Overloaded or Draining at once, TimeoutError at `deadline` (a `time.monotonic()`).

        Raises what `run` raises for this item alone. Cancelling takes the item back.
        """
        if self._draining:
            raise Draining("the server is shutting down")
        if self._pending >= self._max_pending:
            raise Overloaded(self._pending)
        answer: asyncio.Future[Done[R]] = self._loop.create_future()
        item = _Item(value, deadline, answer)
        alarm = None
        if deadline is not None:
            alarm = self._loop.call_later(max(0.0, deadline - item.since), self._expire, item)
        self._waiting.append(item)
        self._pending += 1
        self._look_soon()
        try:
            return await answer
        finally:
            if alarm is not None:
                alarm.cancel()
            self._pending -= 1
            self._drop_what_nobody_wants()

    async def drain(self, timeout: float | None = None) -> None:
        """Take no more; return when all that was accepted has ended. After `timeout` seconds the rest is cancelled."""
        self._draining = True
        self._look()
        answers = {item.answer for item in itertools.chain(self._waiting, *self._under_way.values()) if item.waits}
        if answers:
            _, late = await asyncio.wait(answers, timeout=timeout)
            for answer in late:
                answer.cancel()
            self._drop_what_nobody_wants()
        if self._under_way:
            await asyncio.wait(self._under_way)

    # when a batch is sent

    def _look_soon(self) -> None:
        """What arrives in the same turn of the loop travels together."""
        if self._soon is None:
            self._soon = self._loop.call_soon(self._look)

    def _look(self) -> None:
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        while len(self._under_way) < 2 * self._workers:
            while self._waiting and not self._waiting[0].waits:
                self._waiting.popleft()
            if not self._waiting:
                return
            idle = self._workers - len(self._under_way)
            if idle > 0:
                self._send(-(-self.waiting // idle))
                continue
            due = self._waiting[0].since + self._max_wait - time.monotonic()
            if due > 0 and not self._draining and not self._is_full():
                self._alarm = self._loop.call_later(due, self._look)
                return
            self._send(self._max_batch)

    def _is_full(self) -> bool:
        return len(self._waiting) >= self._max_batch and self.waiting >= self._max_batch

    def _send(self, most: int) -> None:
        items: list[_Item[T, R]] = []
        while self._waiting and len(items) < min(most, self._max_batch):
            item = self._waiting.popleft()
            if item.waits:
                items.append(item)
        self.on_batch(len(items))
        task = self._loop.create_task(self._serve(items))
        self._under_way[task] = items
        task.add_done_callback(self._sent)

    def _sent(self, task: asyncio.Task[None]) -> None:
        items = self._under_way.pop(task)
        for item in items:
            if item.waits:
                item.answer.cancel()  # only when the task itself was cancelled
        self._look()
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error  # a defect of this file: the loop reports it

    # what becomes of a batch

    async def _serve(self, items: list[_Item[T, R]]) -> None:
        error = await self._attempt(items)
        if error is None:
            return
        if len(items) > 1:
            for item in items:
                if item.waits and (alone := await self._attempt([item])) is not None and item.waits:
                    item.answer.set_exception(alone)
        elif items[0].waits:
            items[0].answer.set_exception(error)

    async def _attempt(self, items: list[_Item[T, R]]) -> BaseException | None:
        """Run these, and give each its result. Returns what went wrong, if nobody has been answered."""
        deadlines = [item.deadline for item in items if item.waits]
        latest = None if None in deadlines else max((at for at in deadlines if at is not None), default=None)
        attempt = asyncio.ensure_future(self._run([item.value for item in items], latest))
        try:
            await asyncio.wait([attempt])
        finally:
            attempt.cancel()
        if attempt.cancelled():
            return RuntimeError("the batch was cancelled from elsewhere")
        if (error := attempt.exception()) is not None:
            return error
        results = attempt.result()
        if len(results) != len(items):
            return RuntimeError(f"a batch of {len(items)} got {len(results)} results")
        for item, result in zip(items, results, strict=True):
            if item.waits:
                item.answer.set_result(Done(result, len(items)))
        return None

    def _expire(self, item: _Item[T, R]) -> None:
        if item.waits:
            waited = time.monotonic() - item.since
            item.answer.set_exception(TimeoutError(f"no answer within {waited * 1000:.0f} ms"))

    def _drop_what_nobody_wants(self) -> None:
        """Give up batches without anybody who waits, and make room for others."""
        for task, items in self._under_way.items():
            if not any(item.waits for item in items) and not task.done():
                task.cancel()
        while self._waiting and not self._waiting[0].waits:
            self._waiting.popleft()
