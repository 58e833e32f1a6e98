"""The model server's pool by name: aiospin's own, and what it would otherwise be built on.

Assumption: `docs/examples` is on `sys.path`; the server runs in a process that was started so.
"""

from __future__ import annotations

from model_server.pool import Pool


def make_pool(name: str, model: str, workers: int) -> Pool:
    """Not started yet."""
    if name == "executor":
        from .executor import ExecutorPool

        return ExecutorPool(model, workers)
    if name == "mp_queue":
        from .mp_queue import QueuePool

        return QueuePool(model, workers)
    from model_server.workers_pool import WorkersPool

    return WorkersPool(model, workers)
