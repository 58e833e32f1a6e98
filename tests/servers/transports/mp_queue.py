"""A pair of `multiprocessing.Queue`: requests to all workers, replies from all, read by a thread of an executor.

A put returns at once, since the queue's own thread writes to the pipe; so only the replies need a thread of ours, which
hands each to the loop. (One `run_in_executor(replies.get)` for each reply is also seen; it costs a hop more.)
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import multiprocessing
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.queues import Queue
from types import TracebackType
from typing import Any

from .contract import NoModel

READY = -1
"""the number of the reply that says that a worker is up"""


def _serve(requests: Queue[Any], replies: Queue[Any]) -> None:
    model = NoModel()
    replies.put((READY, 0))
    while (request := requests.get()) is not None:
        number, payload = request
        replies.put((number, model.answer(payload)))


class QueueTransport:
    """Calls are numbered, and a dictionary finds the future that a reply belongs to."""

    def __init__(self, workers: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._requests = context.Queue()
        self._replies = context.Queue()
        self._workers = [
            context.Process(target=_serve, args=(self._requests, self._replies), daemon=True) for _ in range(workers)
        ]
        self._numbers = itertools.count()
        self._pending: dict[int, asyncio.Future[int]] = {}
        self._up = asyncio.Semaphore(0)
        self._thread = ThreadPoolExecutor(1)

    async def __aenter__(self) -> QueueTransport:
        self._loop = asyncio.get_running_loop()
        for worker in self._workers:
            worker.start()
        self._reading = self._loop.run_in_executor(self._thread, self._read)
        for _ in self._workers:
            await self._up.acquire()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for _ in self._workers:
            self._requests.put(None)
        for worker in self._workers:
            await asyncio.to_thread(worker.join)
        self._replies.put(None)
        await self._reading
        self._thread.shutdown()
        for queue in (self._requests, self._replies):
            queue.close()
            await asyncio.to_thread(queue.join_thread)

    async def call(self, payload: bytes) -> int:
        number = next(self._numbers)
        future: asyncio.Future[int] = self._loop.create_future()
        self._pending[number] = future
        try:
            self._requests.put((number, payload))
            return await future
        finally:
            self._pending.pop(number, None)

    def _read(self) -> None:
        """In the thread: every reply to the loop."""
        with contextlib.suppress(RuntimeError):  # the loop was closed
            while (reply := self._replies.get()) is not None:
                self._loop.call_soon_threadsafe(self._deliver, *reply)

    def _deliver(self, number: int, answer: int) -> None:
        if number == READY:
            self._up.release()
            return
        future = self._pending.get(number)
        if future is not None and not future.done():
            future.set_result(answer)

    @property
    def pids(self) -> Sequence[int]:
        return [worker.pid or 0 for worker in self._workers]
