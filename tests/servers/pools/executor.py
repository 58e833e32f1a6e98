"""The pool on `concurrent.futures.ProcessPoolExecutor`, as good as it gets there.

When a worker dies, the executor is broken for good: every call under way fails, those on other workers too, and so does
every later one. So a broken executor is replaced by a new one, and a batch that broke with it is tried once more. The
model is loaded anew in every worker of the new one; batches meanwhile wait for that.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

from model_server.model import Model, Row, make_model
from model_server.pool import Verdict, WorkerStatus

DELIVERIES = 2

_model: Model
"""the worker's, made once by its initializer"""


def _load(name: str) -> None:
    global _model
    _model = make_model(name)


def _predict(files: Sequence[bytes]) -> tuple[int, Sequence[Row]]:
    return _model.predict(*files)


class ExecutorPool:
    """See `Pool`."""

    def __init__(self, model: str, workers: int) -> None:
        self._model = model
        self._workers = workers
        self._restarts = 0
        self._executor = self._make()

    def _make(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(
            self._workers, multiprocessing.get_context("spawn"), initializer=_load, initargs=(self._model,)
        )

    async def start(self) -> None:
        """A worker starts when there is work and no idle one; so all are up once each had a share of these."""
        loop = asyncio.get_running_loop()
        await asyncio.gather(*(loop.run_in_executor(self._executor, _predict, [b"x"]) for _ in range(self._workers)))

    async def stop(self) -> None:
        """Batches under way end first."""
        await asyncio.to_thread(self._executor.shutdown)

    async def predict(self, batch: Sequence[bytes], deadline: float | None) -> list[Verdict]:
        """The files travel pickled. A batch whose deadline passes runs on in the worker."""
        for last in range(1, DELIVERIES + 1):
            executor = self._executor
            timeout = None if deadline is None else max(0.0, deadline - time.monotonic())
            try:
                answer = asyncio.get_running_loop().run_in_executor(executor, _predict, list(batch))
                pid, rows = await asyncio.wait_for(answer, timeout)
            except asyncio.TimeoutError:
                raise TimeoutError(f"no answer to a batch of {len(batch)} in time") from None
            except BrokenProcessPool:
                self._replace(executor)
                if last == DELIVERIES:
                    raise
            else:
                return [Verdict(*row, worker=self._rank(pid)) for row in rows]
        raise AssertionError("not reached")

    def _replace(self, broken: ProcessPoolExecutor) -> None:
        if self._executor is broken:
            broken.shutdown(wait=False)
            self._executor = self._make()
            self._restarts += 1

    def _pids(self) -> list[int]:
        return list(self._executor._processes or ())

    def _rank(self, pid: int) -> int:
        pids = self._pids()
        return pids.index(pid) if pid in pids else -1

    def status(self) -> list[WorkerStatus]:
        """An executor tells its users nothing of its processes, so this looks inside.

        A worker that has no process yet gets one as soon as there is work for it: it counts as up.
        """
        pids = self._pids()
        pids += [0] * (self._workers - len(pids))
        return [WorkerStatus(rank, pid, "up", self._restarts) for rank, pid in enumerate(pids)]
