"""The pool on a pair of `multiprocessing.Queue`: one for requests, one for replies, read by a thread of an executor.

Whichever worker is free takes the next batch; nobody knows which. So when a worker dies, the batch that it had is
answered by nobody, and ends at its deadline. A worker that dies inside `get` takes the queue's lock along, and from
then on no other can take anything: `multiprocessing` offers nothing against that. A dead worker gets a successor here,
as a service would have it.
"""

from __future__ import annotations

import asyncio
import itertools
import multiprocessing
import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.process import BaseProcess
from multiprocessing.queues import Queue
from typing import Any

from model_server.model import Row, make_model
from model_server.pool import Verdict, WorkerStatus

READY = -1
"""the number of the reply that says that a worker is up"""
GRACE = 5.0
"""seconds for a worker to end by itself"""


def _serve(model_name: str, requests: Queue[Any], replies: Queue[Any]) -> None:
    model = make_model(model_name)
    replies.put((READY, os.getpid(), None))
    while (request := requests.get()) is not None:
        number, files = request
        try:
            answer = model.predict(*files)
        except Exception as error:  # noqa: BLE001 - the caller gets whatever the model raises
            replies.put((number, None, error))
        else:
            replies.put((number, answer, None))


class QueuePool:
    """See `Pool`."""

    def __init__(self, model: str, workers: int) -> None:
        self._context = multiprocessing.get_context("spawn")
        self._requests = self._context.Queue()
        self._replies = self._context.Queue()
        self._model = model
        self._size = workers
        self._restarts = [0] * workers
        self._workers: list[BaseProcess] = []
        self._numbers = itertools.count()
        self._pending: dict[int, asyncio.Future[Any]] = {}
        self._up: set[int] = set()
        self._all_up = asyncio.Event()
        self._thread = ThreadPoolExecutor(1)
        self._stopping = False

    async def start(self) -> None:
        """Start the workers; returns when each has loaded its model."""
        self._loop = asyncio.get_running_loop()
        self._reading = self._loop.run_in_executor(self._thread, self._read)
        self._workers = [self._begin(rank) for rank in range(self._size)]
        await self._all_up.wait()

    def _begin(self, rank: int) -> BaseProcess:
        worker = self._context.Process(target=_serve, args=(self._model, self._requests, self._replies), daemon=True)
        worker.start()
        self._loop.add_reader(worker.sentinel, self._succeed, rank, worker)
        return worker

    def _succeed(self, rank: int, worker: BaseProcess) -> None:
        """A worker has ended."""
        self._loop.remove_reader(worker.sentinel)
        self._up.discard(worker.pid or 0)
        if not self._stopping:
            worker.join()
            self._restarts[rank] += 1
            self._workers[rank] = self._begin(rank)

    async def stop(self) -> None:
        """Every worker gets a last message, and is killed if it does not end: it may wait for a dead one's lock."""
        if self._stopping:
            return
        self._stopping = True
        for _ in self._workers:
            self._requests.put(None)
        for worker in self._workers:
            await asyncio.to_thread(worker.join, GRACE)
            worker.kill()
            await asyncio.to_thread(worker.join)
        self._replies.put(None)
        await self._reading
        self._thread.shutdown()
        for queue in (self._requests, self._replies):
            queue.cancel_join_thread()
            queue.close()

    async def predict(self, batch: Sequence[bytes], deadline: float | None) -> list[Verdict]:
        """The files travel pickled."""
        number = next(self._numbers)
        future: asyncio.Future[tuple[int, Sequence[Row]]] = self._loop.create_future()
        self._pending[number] = future
        try:
            self._requests.put((number, list(batch)))
            pid, rows = await asyncio.wait_for(future, None if deadline is None else deadline - time.monotonic())
        except asyncio.TimeoutError:
            raise TimeoutError(f"no answer to a batch of {len(batch)} in time") from None
        finally:
            self._pending.pop(number, None)
        rank = next((rank for rank, worker in enumerate(self._workers) if worker.pid == pid), -1)
        return [Verdict(*row, worker=rank) for row in rows]

    def _read(self) -> None:
        """In the thread: every reply to the loop."""
        while (reply := self._replies.get()) is not None:
            self._loop.call_soon_threadsafe(self._deliver, *reply)

    def _deliver(self, number: int, answer: Any, error: Exception | None) -> None:
        if number == READY:
            self._up.add(answer)
            if len(self._up) >= self._size:
                self._all_up.set()
            return
        future = self._pending.get(number)
        if future is None or future.done():
            return
        if error is None:
            future.set_result(answer)
        else:
            future.set_exception(error)

    def status(self) -> list[WorkerStatus]:
        """All workers, by rank."""
        return [
            WorkerStatus(rank, worker.pid or 0, "up" if worker.pid in self._up else "restarting", self._restarts[rank])
            for rank, worker in enumerate(self._workers)
        ]
