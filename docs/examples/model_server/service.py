"""What the server does, without HTTP: files in, answers or failures out, and everything counted.

Guarantee: `classify` returns for every file; it raises only CancelledError, and then the file's work has been given up.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from model_server import cpu
from model_server.batcher import Batcher, Done, Draining, Overloaded
from model_server.metrics import Counter, Histogram, Now, text
from model_server.pool import Pool, Verdict
from model_server.recent import Recent
from model_server.settings import Settings

_LATENCIES = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_BATCHES = (1, 2, 4, 8, 16, 32, 64)


@dataclass(frozen=True)
class Answer:
    """What one file is, and what it took."""

    verdict: Verdict
    batch: int
    latency: float

    def fields(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self.verdict), "batch": self.batch, "latency_ms": round(self.latency * 1000, 3)}


@dataclass(frozen=True)
class Failure:
    """Why there is no answer, as HTTP has it."""

    status: int
    outcome: str
    error: str
    retry_after: int | None = None
    """Seconds, from the rate that was measured."""

    def fields(self) -> dict[str, Any]:
        """For JSON."""
        retry = {} if self.retry_after is None else {"retry_after": self.retry_after}
        return {"error": self.error, "status": self.status, **retry}


class Service:
    """One pool, one batcher, one event loop."""

    def __init__(self, settings: Settings, pool: Pool) -> None:
        self.settings = settings
        self.pool = pool
        self.recent = Recent()
        self.draining = asyncio.Event()
        """Set when the server is about to end."""
        self._files = Counter("model_server_files_total", "Files by what became of them.")
        self._requests = Counter("model_server_requests_total", "Requests by path and status.")
        self._latency = Histogram("model_server_latency_seconds", "From a file's arrival to its answer.", _LATENCIES)
        self._batches = Histogram("model_server_batch_files", "Files in a batch that was sent to a worker.", _BATCHES)
        self._batcher: Batcher[bytes, Verdict] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def start(self) -> None:
        """Start the workers; raises what keeps them from starting."""
        self._loop = asyncio.get_running_loop()
        settings = self.settings
        self._batcher = Batcher(
            self.pool.predict,
            max_batch=settings.max_batch,
            max_wait=settings.max_wait,
            max_pending=settings.max_pending,
            workers=settings.workers,
        )
        self._batcher.on_batch = self._batches.add
        await self.pool.start()

    async def stop(self) -> None:
        """Let what is under way end, for a while, and then the workers."""
        self.draining.set()
        if self._batcher is not None:
            await self._batcher.drain(self.settings.drain)
        await self.pool.stop()

    def begin_to_drain(self) -> None:
        """Take no more files. May be called from a signal handler or another thread."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self.draining.set)

    # files

    async def classify(self, content: bytes, deadline: float) -> Answer | Failure:
        """What a file is, by `deadline`, a `time.monotonic()`."""
        began = time.monotonic()
        outcome = "cancelled"
        try:
            answer = await self._classify(content, deadline, began)
            outcome = "ok" if isinstance(answer, Answer) else answer.outcome
            return answer
        finally:
            self._files.add(outcome=outcome)

    async def _classify(self, content: bytes, deadline: float, began: float) -> Answer | Failure:
        assert self._batcher is not None, "start() comes first"
        if self.draining.is_set():
            return self._failure(Draining("the server is shutting down"))
        asking: asyncio.Task[Done[Verdict]] = asyncio.ensure_future(self._batcher.submit(content, deadline))
        try:
            await asyncio.wait([asking])
        finally:
            asking.cancel()
        if asking.cancelled():
            return self._failure(Draining("the server has shut down"))
        error = asking.exception()
        if error is not None:
            return self._failure(error)
        latency = time.monotonic() - began
        self.recent.add(latency)
        self._latency.add(latency)
        done = asking.result()
        return Answer(done.result, done.batch, latency)

    def refusal(self) -> Failure | None:
        """Why a file would be refused now; None if it would not."""
        if self.draining.is_set():
            return self._failure(Draining("the server is shutting down"))
        if self.pending >= self.settings.max_pending:
            return self._failure(Overloaded(self.pending))
        return None

    def _failure(self, error: BaseException) -> Failure:
        if isinstance(error, Overloaded):
            return Failure(503, "refused", str(error), self._retry_after(error.pending))
        if isinstance(error, Draining):
            return Failure(503, "refused", str(error), max(1, round(self.settings.drain)))
        if isinstance(error, TimeoutError):
            return Failure(504, "late", str(error))
        return Failure(500, "failed", f"{type(error).__name__}: {error}")

    def _retry_after(self, pending: int) -> int:
        return self.recent.seconds_for(pending, 0.0 if self._batcher is None else self._batcher.oldest)

    # what it tells of itself

    @property
    def pending(self) -> int:
        """Files that wait for their answers."""
        return 0 if self._batcher is None else self._batcher.pending

    def health(self) -> tuple[int, dict[str, Any]]:
        """A status, and the body that explains it."""
        workers = self.pool.status()
        if self.draining.is_set():
            state = "draining"
        elif any(worker.state == "up" for worker in workers):
            state = "ok"
        else:
            state = "no worker is up"
        told = [
            {"rank": worker.rank, "pid": worker.pid, "state": worker.state, "restarts": worker.restarts}
            for worker in workers
        ]
        return (200 if state == "ok" else 503), {"status": state, "workers": told}

    def count_request(self, path: str, status: int) -> None:
        """One more request has been answered."""
        self._requests.add(path=path, status=str(status))

    def metrics(self) -> str:
        """For Prometheus."""
        workers = self.pool.status()
        ranks = [({"rank": str(worker.rank)}, worker) for worker in workers]
        used = [(rank, cpu.seconds_of(worker.pid)) for rank, worker in ranks]
        batcher = self._batcher
        waiting: Sequence[tuple[dict[str, str], float]] = [({}, 0.0 if batcher is None else batcher.waiting)]
        return text(
            [
                self._files,
                self._requests,
                self._latency,
                self._batches,
                Now("model_server_queue_files", "Files that are in no batch yet.", waiting),
                Now("model_server_pending_files", "Files that wait for their answers.", [({}, float(self.pending))]),
                Now(
                    "model_server_worker_up",
                    "Whether a worker can be given files.",
                    [(rank, float(worker.state == "up")) for rank, worker in ranks],
                ),
                Now(
                    "model_server_worker_restarts_total",
                    "Successors that a worker has got.",
                    [(rank, float(worker.restarts)) for rank, worker in ranks],
                    "counter",
                ),
                Now(
                    "model_server_worker_cpu_seconds_total",
                    "CPU time of a worker's process; begins anew with each.",
                    [(rank, seconds) for rank, seconds in used if seconds is not None],
                    "counter",
                ),
            ]
        )
