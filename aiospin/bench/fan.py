"""Subjects that only know pairs, and how they broadcast: a pair for each reader, written to one by one.

This is what programs do that have nothing better. With one reader the pair's own calls are handed out as they are.
"""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from aiospin.bench.contract import End, Line, Plan, Subject


@dataclass(frozen=True)
class Pairs(Subject):
    """The writer's ticket is the list of those of its pairs; a reader's is that of one pair."""

    @abstractmethod
    def pair(self, plan: Plan) -> contextlib.AbstractContextManager[tuple[Any, Any]]:
        """One pair: the writer's and the reader's ticket."""

    @contextlib.contextmanager
    def line(self, plan: Plan) -> Iterator[Line]:
        with contextlib.ExitStack() as stack:
            one = replace(plan, readers=1)
            pairs = [stack.enter_context(self.pair(one)) for _ in range(plan.readers)]
            yield Line([writer for writer, _ in pairs], [reader for _, reader in pairs])


@dataclass(frozen=True)
class BlockingPairs(Pairs):
    @abstractmethod
    def enter(self, ticket: Any, plan: Plan) -> contextlib.AbstractContextManager[End]:
        """Open one end of a pair."""

    @contextlib.contextmanager
    def open(self, ticket: Any, plan: Plan) -> Iterator[End]:
        tickets = ticket if isinstance(ticket, list) else [ticket]
        with contextlib.ExitStack() as stack:
            ends = [stack.enter_context(self.enter(each, plan)) for each in tickets]
            yield ends[0] if len(ends) == 1 else replace(ends[0], send=_to_each([end.send for end in ends]))


@dataclass(frozen=True)
class AwaitedPairs(Pairs):
    @abstractmethod
    def enter(self, ticket: Any, plan: Plan) -> contextlib.AbstractAsyncContextManager[End]:
        """Open one end of a pair."""

    @contextlib.asynccontextmanager
    async def open(self, ticket: Any, plan: Plan) -> AsyncIterator[End]:
        tickets = ticket if isinstance(ticket, list) else [ticket]
        async with contextlib.AsyncExitStack() as stack:
            ends = [await stack.enter_async_context(self.enter(each, plan)) for each in tickets]
            yield ends[0] if len(ends) == 1 else replace(ends[0], send=_to_each_awaited([end.send for end in ends]))


def _to_each(sends: list[Callable[[bytes], Any]]) -> Callable[[bytes], None]:
    def send(payload: bytes) -> None:
        for each in sends:
            each(payload)

    return send


def _to_each_awaited(sends: list[Callable[[bytes], Any]]) -> Callable[[bytes], Any]:
    async def send(payload: bytes) -> None:
        for each in sends:
            await each(payload)

    return send
