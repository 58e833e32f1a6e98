"""Subjects that only know pairs, and how they broadcast: a pair for each reader, written to one by one.

This is what programs do that have nothing better. With one reader the pair's own calls are handed out as they are.
"""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import AsyncGenerator, Callable, Generator
from dataclasses import dataclass, replace
from typing import Any

from aiospin.bench.contract import End, Line, Plan, Subject


class Several(tuple[Any, ...]):
    """The writer's ticket: that of each pair."""


@dataclass(frozen=True)
class Pairs(Subject):
    @abstractmethod
    def pair(self, plan: Plan) -> contextlib.AbstractContextManager[tuple[Any, Any]]:
        """One pair: the writer's and the reader's ticket."""

    @contextlib.contextmanager
    def line(self, plan: Plan) -> Generator[Line, None, None]:
        with contextlib.ExitStack() as stack:
            one = replace(plan, readers=1)
            pairs = [stack.enter_context(self.pair(one)) for _ in range(plan.readers)]
            yield Line(Several(writer for writer, _ in pairs), [reader for _, reader in pairs])


@dataclass(frozen=True)
class BlockingPairs(Pairs):
    @abstractmethod
    def enter(self, ticket: Any, plan: Plan) -> contextlib.AbstractContextManager[End]:
        """Open one end of a pair."""

    @contextlib.contextmanager
    def open(self, ticket: Any, plan: Plan) -> Generator[End, None, None]:
        tickets = _tickets(ticket)
        with contextlib.ExitStack() as stack:
            ends = [stack.enter_context(self.enter(each, plan)) for each in tickets]
            yield ends[0] if len(ends) == 1 else replace(ends[0], send=_to_each([end.send for end in ends]))


@dataclass(frozen=True)
class AwaitedPairs(Pairs):
    @abstractmethod
    def enter(self, ticket: Any, plan: Plan) -> contextlib.AbstractAsyncContextManager[End]:
        """Open one end of a pair."""

    @contextlib.asynccontextmanager
    async def open(self, ticket: Any, plan: Plan) -> AsyncGenerator[End, None]:
        tickets = _tickets(ticket)
        async with contextlib.AsyncExitStack() as stack:
            ends = [await stack.enter_async_context(self.enter(each, plan)) for each in tickets]
            yield ends[0] if len(ends) == 1 else replace(ends[0], send=_to_each_awaited([end.send for end in ends]))


def _tickets(ticket: Any) -> list[Any]:
    """The writer has several, and a reader one."""
    return list(ticket) if isinstance(ticket, Several) else [ticket]


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
