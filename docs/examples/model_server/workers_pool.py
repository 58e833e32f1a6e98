"""The pool on `aiospin.workers`: a group of processes, each with the model; files travel to them in place.

A batch goes to the worker with the least to do. When that dies, its successor, or another, gets the batch again, twice
at most: looking at a file changes nothing, so `at_least_once` is right.

Assumption: `stop` is called in the loop of `start`. A group belongs to one event loop.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from aiospin.workers import Restart, WorkerGroup
from model_server.model import Model, make_model
from model_server.pool import Verdict, WorkerState, WorkerStatus

_STATES: Mapping[str, WorkerState] = {"up": "up", "starting": "starting", "given up": "failed"}


class WorkersPool:
    """See `Pool`."""

    def __init__(
        self,
        model: str,
        workers: int,
        *,
        start_timeout: float | None = 300.0,
        drain_timeout: float | None = 20.0,
        kill_after: float | None = 30.0,
    ) -> None:
        self._group: WorkerGroup[Model] = WorkerGroup(
            make_model,
            workers,
            args=(model,),
            capacity="8 MiB",
            restart=Restart(first=0.2, attempts=None),  # a service goes on trying
            delivery="at_least_once",
            kill_after=kill_after,  # a model that hangs is ended, once nobody waits for it
            start_timeout=start_timeout,
            drain_timeout=drain_timeout,
        )
        self._ranks: dict[int, int] = {}
        """Of every process there has been."""

    async def start(self) -> None:
        """Start the workers; returns when each has loaded its model."""
        await self._group.start()
        self._note_ranks()

    async def stop(self) -> None:
        """Let batches under way end, and then the workers."""
        await self._group.aclose()

    async def predict(self, batch: Sequence[bytes], deadline: float | None) -> list[Verdict]:
        """Each file is a buffer beside the call, and a view of the ring in the worker: no copy between."""
        caller = self._group
        timeout = None if deadline is None else max(0.0, deadline - time.monotonic())
        views = [memoryview(file) for file in batch]
        pid, rows = await caller.options(timeout=timeout).call_one("any", Model.predict, *views)
        if pid not in self._ranks:
            self._note_ranks()
        rank = self._ranks.get(pid, -1)
        return [Verdict(*row, worker=rank) for row in rows]

    def status(self) -> list[WorkerStatus]:
        """All workers, by rank."""
        return [
            WorkerStatus(worker.rank, worker.pid, _STATES.get(worker.state, "restarting"), max(0, worker.starts - 1))
            for worker in self._group.statistics().workers
        ]

    def _note_ranks(self) -> None:
        self._ranks.update((pid, rank) for rank, pid in enumerate(self._group.pids) if pid)
