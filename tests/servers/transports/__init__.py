"""All transports by name, the one under test first."""

from __future__ import annotations

from collections.abc import Callable

from .contract import Transport


def _aiospin(workers: int) -> Transport:
    from .worker_group import WorkerGroupTransport

    return WorkerGroupTransport(workers)


def _executor(workers: int) -> Transport:
    from .executor import ExecutorTransport

    return ExecutorTransport(workers)


def _mp_queue(workers: int) -> Transport:
    from .mp_queue import QueueTransport

    return QueueTransport(workers)


TRANSPORTS: dict[str, Callable[[int], Transport]] = {
    "aiospin": _aiospin,
    "executor": _executor,
    "mp_queue": _mp_queue,
}
