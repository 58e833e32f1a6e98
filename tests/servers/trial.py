"""One trial of a server: so many clients for so long, a worker killed in the middle, and all that is seen of it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from aiospin.bench.cpu import cpu_ns
from aiospin.bench.samples import percentile

from .clients import run_clients
from .http_connection import Disconnected
from .ledger import Ledger, shortened
from .memory import Growth, MemoryLog
from .samples import Sample
from .server import ModelServer

Cpu = dict[int, int]


@dataclass
class Outcome:
    """Of one trial. Seconds, bytes; latencies in milliseconds."""

    clients: int
    asked: int
    answered: int
    refused: dict[int, int]
    failures: dict[str, int]
    complaint_count: int
    complaints: list[str]
    """the first of them"""
    per_s: float
    p50_ms: float
    p99_ms: float
    max_ms: float
    killed: int | None
    """the pid"""
    recovered_after: float | None
    """from the kill until the server called all workers up again; None if it never did"""
    longest_gap: float
    """between two answers, whoever they were for"""
    server_growth: Growth | None
    workers_growth: list[Growth] = field(default_factory=list)
    """of those that were not killed"""
    cpu_percent: float = 0.0
    """of one core, server and workers together"""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def cpu_of(pids: Sequence[int]) -> Cpu:
    """CPU nanoseconds of those that live."""
    used = {}
    for pid in pids:
        with contextlib.suppress(OSError):
            used[pid] = cpu_ns(pid)
    return used


def cpu_percent(before: Cpu, after: Cpu, wall: float) -> float:
    """Of one core, by all that live at the end; one that is new counts from its start."""
    return sum(used - before.get(pid, 0) for pid, used in after.items()) / 1e7 / wall


async def play(
    server: ModelServer,
    samples: Sequence[Sample],
    *,
    clients: int,
    seconds: float,
    kill: bool = True,
    patience: float = 30.0,
) -> Outcome:
    """Load the server, kill a worker half-way, and look what comes of it."""
    ledger, memory = Ledger(), MemoryLog()
    workers = await server.worker_pids()

    async def everybody() -> Sequence[int]:
        with contextlib.suppress(Disconnected, OSError):
            return [server.pid, *await server.worker_pids()]
        return [server.pid]

    cpu, began = cpu_of([server.pid, *workers]), time.monotonic()
    following = asyncio.ensure_future(memory.follow(everybody, max(0.1, seconds / 80)))
    killing = asyncio.ensure_future(_kill_one(server, len(workers), seconds / 2)) if kill else None
    try:
        await run_clients(server.port, clients, seconds, samples, ledger, patience=patience)
        wall, gap = time.monotonic() - began, ledger.longest_gap
        used = cpu_percent(cpu, cpu_of(await everybody()), wall)
        killed, recovered = await asyncio.wait_for(killing, patience) if killing is not None else (None, None)
    except asyncio.TimeoutError:
        killed, recovered = workers[0], None
    finally:
        for task in filter(None, (following, killing)):
            task.cancel()
        await asyncio.gather(following, return_exceptions=True)
    took, complaints = sorted(ledger.took_ns) or [0], ledger.complaints()
    return Outcome(
        clients=clients,
        asked=ledger.asked,
        answered=ledger.answered,
        refused=dict(ledger.refused),
        failures=dict(ledger.failures),
        complaint_count=len(complaints),
        complaints=shortened(complaints),
        per_s=ledger.answered / wall,
        p50_ms=percentile(took, 0.50) / 1e6,
        p99_ms=percentile(took, 0.99) / 1e6,
        max_ms=took[-1] / 1e6,
        killed=killed,
        recovered_after=recovered,
        longest_gap=gap,
        server_growth=memory.growth(server.pid),
        workers_growth=[
            growth
            for pid in memory.samples
            if pid not in (server.pid, killed) and (growth := memory.growth(pid)) is not None
        ],
        cpu_percent=used,
    )


async def _kill_one(server: ModelServer, workers: int, after: float) -> tuple[int, float]:
    """SIGKILL for the first worker; then wait until there are as many as before again, none of them that one."""
    await asyncio.sleep(after)
    victim = (await server.worker_pids())[0]
    os.kill(victim, signal.SIGKILL)
    since = time.monotonic()
    while True:
        with contextlib.suppress(Disconnected, OSError):
            told = (await server.health())["workers"]
            if sum(of["state"] == "up" and of["pid"] != victim for of in told) == workers:
                return victim, time.monotonic() - since
        await asyncio.sleep(0.05)


async def idle(server: ModelServer, seconds: float) -> dict[str, float]:
    """CPU of the server and of its workers while nobody asks, in per cent of one core."""
    workers = await server.worker_pids()
    await asyncio.sleep(seconds / 4)
    before, since = cpu_of([server.pid, *workers]), time.monotonic()
    await asyncio.sleep(seconds)
    after, wall = cpu_of([server.pid, *workers]), time.monotonic() - since
    split = {"server": [server.pid], "workers": workers}
    return {
        name: cpu_percent(before, {pid: after[pid] for pid in pids if pid in after}, wall)
        for name, pids in split.items()
    }
