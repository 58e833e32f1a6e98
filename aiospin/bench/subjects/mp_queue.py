"""multiprocessing.Queue: a pipe behind locks, and a thread that pickles and feeds it."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from typing import Any

from aiospin.bench.contract import End, Plan, not_this_way
from aiospin.bench.fan import BlockingPairs
from aiospin.bench.stage import FORK

MESSAGES = 1000
"""how many messages it holds, if they are not too large"""


class MpQueue(BlockingPairs):
    @contextlib.contextmanager
    def pair(self, plan: Plan) -> Generator[tuple[Any, Any], None, None]:
        size = max(2, min(MESSAGES, plan.room // plan.nbytes))
        there, back = FORK.Queue(size), FORK.Queue(size) if plan.answers else None
        try:
            yield (there, back), (back, there)
        finally:
            for queue in (there, back):
                if queue is not None:
                    queue.close()
                    queue.cancel_join_thread()

    @contextlib.contextmanager
    def enter(self, ticket: Any, plan: Plan) -> Generator[End, None, None]:
        outgoing, incoming = ticket
        yield End(outgoing.put if outgoing else not_this_way, incoming.get if incoming else not_this_way)
        if outgoing is not None:
            outgoing.close()
            outgoing.join_thread()


SUBJECTS = (MpQueue("mp.Queue", "sync"),)
