"""faster-fifo: a circular buffer in shared memory under a mutex and condition variables of the kernel.

It takes and gives bytes as they are here; by default it pickles.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Generator
from typing import Any

from aiospin.bench.contract import End, Plan, imported
from aiospin.bench.fan import BlockingPairs

PATIENCE = 3600.0
"""seconds; it has no calls without a time-out"""
HEAD = 64
"""bytes beside each message, more than it needs"""


class FasterFifo(BlockingPairs):
    @contextlib.contextmanager
    def pair(self, plan: Plan) -> Generator[tuple[Any, Any], None, None]:
        queue = imported("faster_fifo").Queue
        there = queue(plan.room + HEAD, loads=bytes, dumps=bytes)
        back = queue(plan.room + HEAD, loads=bytes, dumps=bytes) if plan.answers else None
        yield (there, back), (back, there)

    @contextlib.contextmanager
    def enter(self, ticket: Any, plan: Plan) -> Generator[End, None, None]:
        outgoing, incoming = ticket
        calls: dict[str, Callable[..., Any]] = {}
        if outgoing is not None:
            calls["send"] = functools.partial(outgoing.put, timeout=PATIENCE)
            calls["send_many"] = functools.partial(outgoing.put_many, timeout=PATIENCE)
        if incoming is not None:
            get_many = incoming.get_many
            calls["receive"] = functools.partial(incoming.get, timeout=PATIENCE)

            def receive_many(most: int) -> Any:
                return get_many(timeout=PATIENCE, max_messages_to_get=most)

            calls["receive_many"] = receive_many
        yield End(**calls)


SUBJECTS = (FasterFifo("faster-fifo", "sync", needs="faster_fifo", package="faster-fifo", batches=True),)
