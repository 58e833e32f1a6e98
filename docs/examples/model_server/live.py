"""What the page's chart shows: one sample a second for as long as somebody looks.

Guarantee: costs nothing while nobody looks, and ends when the server drains.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from model_server.cpu import Shares
from model_server.recent import quantile
from model_server.service import Service


async def samples(service: Service, interval: float = 1.0) -> AsyncGenerator[dict[str, Any], None]:
    """Latency, rate and workers, every `interval` seconds."""
    shares = Shares()
    ending = asyncio.ensure_future(service.draining.wait())
    try:
        while not ending.done():
            yield _sample(service, shares)
            await asyncio.wait([ending], timeout=interval)
    finally:
        ending.cancel()


def _sample(service: Service, shares: Shares) -> dict[str, Any]:
    latencies = service.recent.latencies()
    workers = service.pool.status()
    used = shares.look(worker.pid for worker in workers)
    return {
        "latency": {"p50_ms": _ms(quantile(latencies, 0.5)), "p99_ms": _ms(quantile(latencies, 0.99))},
        "requests_per_second": round(service.recent.rate(), 1),
        "pending": service.pending,
        "workers": [
            {
                "rank": worker.rank,
                "pid": worker.pid,
                "state": worker.state,
                "restarts": worker.restarts,
                "cpu_percent": round(used.get(worker.pid, 0.0), 1),
            }
            for worker in workers
        ],
    }


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 2)
