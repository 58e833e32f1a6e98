"""`aiospin.workers.WorkerGroup`. The payload travels as a view, and is one of shared memory when it arrives."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType

from aiospin.workers import WorkerGroup

from .contract import NoModel

CAPACITY = "64 MiB"
"""of each ring: room for several of the largest payloads"""


class WorkerGroupTransport:
    """A group, as its documentation shows it."""

    def __init__(self, workers: int) -> None:
        self._group = WorkerGroup(NoModel, workers, capacity=CAPACITY)

    async def __aenter__(self) -> WorkerGroupTransport:
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._group.__aexit__(kind, error, trace)

    async def call(self, payload: bytes) -> int:
        return await self._group.call_one("any", NoModel.answer, memoryview(payload))

    @property
    def pids(self) -> Sequence[int]:
        return self._group.pids
