"""`python -m tests.servers.case TRANSPORT --workers N --seconds S`: plays a transport once, prints figures as JSON.

Guarantee: every answer was checked; a wrong one raises, and so does whatever a call raises.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import Sequence

import uvloop

from aiospin.bench.cpu import cpu_ns
from aiospin.bench.pace import switches
from aiospin.bench.samples import percentile

from .scenarios import CLIENTS, PAYLOADS, SMALL, Figures, closed_loop_name, payload_name
from .transports import TRANSPORTS
from .transports.contract import NoModel, Transport

WARM_UP = 0.2
"""the part of each measurement's time that is played before it, and not measured"""


async def _clients(transport: Transport, clients: int, payload: bytes, seconds: float) -> list[int]:
    """Each client calls, awaits and calls again. The nanoseconds that each call took."""
    expected = NoModel().answer(payload)
    clock = time.perf_counter_ns
    end = clock() + int(seconds * 1e9)
    took: list[int] = []

    async def client() -> None:
        while (before := clock()) < end:
            answer = await transport.call(payload)
            took.append(clock() - before)
            if answer != expected:
                raise AssertionError(f"{answer:#x} came for a payload whose answer is {expected:#x}")

    await asyncio.gather(*(client() for _ in range(clients)))
    return took


async def closed_loop(transport: Transport, clients: int, nbytes: int, seconds: float) -> Figures:
    """Calls a second and their latency, from so many clients that each wait for their answer."""
    payload = b"<" + bytes(nbytes - 2) + b">"
    await _clients(transport, clients, payload, seconds * WARM_UP)
    before = time.perf_counter_ns()
    took = sorted(await _clients(transport, clients, payload, seconds))
    per_s = len(took) / ((time.perf_counter_ns() - before) / 1e9)
    return {
        "per_s": per_s,
        "p50_us": percentile(took, 0.50) / 1e3,
        "p99_us": percentile(took, 0.99) / 1e3,
        "max_us": took[-1] / 1e3,
        "gb_per_s": per_s * nbytes / 1e9,
    }


async def idle(transport: Transport, seconds: float) -> Figures:
    """What the server's process and its workers use while nobody calls."""
    here, workers = os.getpid(), list(transport.pids)
    await asyncio.sleep(seconds / 4)  # what the last calls left behind may settle
    cpu = {pid: cpu_ns(pid) for pid in (here, *workers)}
    slept = {pid: switches(pid)[0] for pid in (here, *workers)}
    before = time.perf_counter_ns()
    await asyncio.sleep(seconds)
    wall = (time.perf_counter_ns() - before) / 1e9
    used = {pid: (cpu_ns(pid) - cpu[pid]) / 1e9 for pid in cpu}
    woken = {pid: switches(pid)[0] - slept[pid] for pid in cpu}
    return {
        "server_cpu_percent": 100 * used[here] / wall,
        "workers_cpu_percent": 100 * sum(used[pid] for pid in workers) / wall,
        "server_switches_per_s": woken[here] / wall,
        "workers_switches_per_s": sum(woken[pid] for pid in workers) / wall,
    }


async def play(name: str, workers: int, seconds: float, idle_seconds: float) -> dict[str, Figures]:
    """Every scenario in turn, on one set of workers."""
    played = {}
    async with TRANSPORTS[name](workers) as transport:
        for clients in CLIENTS:
            played[closed_loop_name(clients)] = await closed_loop(transport, clients, SMALL, seconds)
        for nbytes in PAYLOADS:
            played[payload_name(nbytes)] = await closed_loop(transport, 1, nbytes, seconds)
        played["idle"] = await idle(transport, idle_seconds)
    return played


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.servers.case", description=__doc__)
    parser.add_argument("transport", choices=list(TRANSPORTS))
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--idle-seconds", type=float, default=4.0)
    args = parser.parse_args(argv)
    print(json.dumps(uvloop.run(play(args.transport, args.workers, args.seconds, args.idle_seconds))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
