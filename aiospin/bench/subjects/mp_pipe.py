"""multiprocessing.Pipe: what the standard library offers to two processes that wait for each other."""

from __future__ import annotations

import contextlib
import multiprocessing
from collections.abc import Callable, Generator, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

from aiospin.bench.contract import End, Plan
from aiospin.bench.fan import BlockingPairs


class Pipe(BlockingPairs):
    @contextlib.contextmanager
    def pair(self, plan: Plan) -> Generator[tuple[Any, Any], None, None]:
        reader, writer = multiprocessing.Pipe(duplex=plan.answers)
        with reader, writer:
            yield writer, reader

    @contextlib.contextmanager
    def enter(self, ticket: Connection, plan: Plan) -> Generator[End, None, None]:
        yield End(ticket.send_bytes, ticket.recv_bytes, member=ticket)

    @contextlib.contextmanager
    def wait_for_any(self, ends: Sequence[End]) -> Generator[Callable[[], Any], None, None]:
        connections = [end.member for end in ends]
        yield lambda: wait(connections)


SUBJECTS = (Pipe("Pipe", "sync", waits_for_many=True),)
