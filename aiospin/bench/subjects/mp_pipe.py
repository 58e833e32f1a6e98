"""multiprocessing.Pipe: what the standard library offers to two processes that wait for each other."""

from __future__ import annotations

import contextlib
import multiprocessing
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any

from aiospin.bench.contract import End, Plan
from aiospin.bench.fan import BlockingPairs


class Pipe(BlockingPairs):
    @contextlib.contextmanager
    def pair(self, plan: Plan) -> Iterator[tuple[Any, Any]]:
        reader, writer = multiprocessing.Pipe(duplex=plan.answers)
        with reader, writer:
            yield writer, reader

    @contextlib.contextmanager
    def enter(self, ticket: Connection, plan: Plan) -> Iterator[End]:
        yield End(ticket.send_bytes, ticket.recv_bytes)


SUBJECTS = (Pipe("Pipe", "sync"),)
