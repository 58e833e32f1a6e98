"""`concurrent.futures.ProcessPoolExecutor`, awaited with `loop.run_in_executor`."""

from __future__ import annotations

import asyncio
import multiprocessing
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from types import TracebackType

from .contract import NoModel

_model: NoModel
"""the worker's, made once by its initializer"""


def _make_model() -> None:
    global _model
    _model = NoModel()


def _answer(payload: bytes) -> int:
    return _model.answer(payload)


class ExecutorTransport:
    """A pool with an initializer. All its processes are started by the first call, and are up after a round of them."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), initializer=_make_model)

    async def __aenter__(self) -> ExecutorTransport:
        self._loop = asyncio.get_running_loop()
        await asyncio.gather(*(self.call(b"first") for _ in range(4 * self._workers)))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self._pool.shutdown)

    async def call(self, payload: bytes) -> int:
        return await self._loop.run_in_executor(self._pool, _answer, payload)

    @property
    def pids(self) -> Sequence[int]:
        return sorted(self._pool._processes)
