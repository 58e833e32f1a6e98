"""The demo's worker processes: started so that Ctrl-C cannot tear them, watched, and ended.

Guarantee: when the `with` ends no worker is left, whatever ended it. A worker gets GRACE seconds to end by itself,
which it does once its queue is closed, then it is killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
from collections.abc import Generator, Sequence
from multiprocessing import resource_tracker
from multiprocessing.process import BaseProcess
from types import TracebackType
from typing import TYPE_CHECKING

from aiospin._children import how_it_ended, sigint_blocked
from aiospin.cli.demo_worker import work

if TYPE_CHECKING:
    from aiospin import Queue

GRACE = 3.0


class WorkerDied(Exception):
    """A worker ended before the work did."""

    def __init__(self, rank: int, process: BaseProcess) -> None:
        process.join(1.0)
        end = how_it_ended(process.exitcode)
        super().__init__(f"worker {rank} (pid {process.pid}) {end} before the work was done")


class Crew:
    """One process per reader of `queue`, worker r answering on `answers[r]`."""

    def __init__(self, queue: Queue[bytes], answers: Sequence[Queue[bytes]], loop: str) -> None:
        spawn = multiprocessing.get_context("spawn")
        self.processes: list[BaseProcess] = [
            spawn.Process(
                target=work,
                args=(queue.reader(rank), answers[rank].writer(), rank, loop),
                name=f"aiospin-demo-worker-{rank}",
                daemon=True,
            )
            for rank in range(len(answers))
        ]

    def __enter__(self) -> Crew:
        # multiprocessing starts this by itself at the first start(), and unblocks SIGINT while at it
        resource_tracker.ensure_running()
        with sigint_blocked():
            for process in self.processes:
                process.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self.processes:
            process.join(GRACE)
        for process in self.processes:
            if process.exitcode is None:
                process.kill()
                process.join()
            process.close()

    def died(self, rank: int) -> WorkerDied:
        return WorkerDied(rank, self.processes[rank])

    @contextlib.contextmanager
    def watched(self) -> Generator[asyncio.Future[None], None, None]:
        """A future of the running loop that raises WorkerDied when a worker ends. To be awaited by somebody."""
        loop = asyncio.get_running_loop()
        death: asyncio.Future[None] = loop.create_future()

        def ended(rank: int, sentinel: int) -> None:
            loop.remove_reader(sentinel)
            if not death.done():
                death.set_exception(self.died(rank))

        sentinels = [process.sentinel for process in self.processes]
        for rank, sentinel in enumerate(sentinels):
            loop.add_reader(sentinel, ended, rank, sentinel)
        try:
            yield death
        finally:
            for sentinel in sentinels:
                loop.remove_reader(sentinel)
            death.cancel()
