"""What the server asks of whatever runs the model: the contract, and nothing of how.

`create_app` takes a Pool from outside, so the same server runs on aiospin (`workers_pool.py`) or on another transport.

Assumption: all methods are called from one event loop, and `predict` between `start` and `stop`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

WorkerState = Literal["starting", "up", "restarting", "failed"]


@dataclass(frozen=True)
class Verdict:
    """What one file is."""

    label: str
    description: str
    mime: str
    group: str
    score: float
    """From 0 to 1."""
    worker: int
    """The rank of the worker that said so."""


@dataclass(frozen=True)
class WorkerStatus:
    """One worker, now."""

    rank: int
    pid: int
    """0 while it has no process."""
    state: WorkerState
    restarts: int
    """How often it has got a successor."""


class Pool(Protocol):
    """Workers that each hold a model."""

    async def start(self) -> None:
        """Start the workers and return when each has loaded its model. Raises when one cannot; nothing is left then."""

    async def stop(self) -> None:
        """Let batches under way end, for a while, and then the workers. Idempotent."""

    async def predict(self, batch: Sequence[bytes], deadline: float | None) -> list[Verdict]:
        """One verdict for each file of the batch, in its order, by one worker.

        `deadline` is a `time.monotonic()`, or None. TimeoutError when it passes; otherwise whatever the model raises,
        or an error that says that the workers which were given the batch died. Cancelling gives the batch up. A
        worker's death alone is no reason to fail: predicting twice harms nobody.
        """

    def status(self) -> list[WorkerStatus]:
        """All workers, by rank."""
