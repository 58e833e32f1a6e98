"""pyzmq on asyncio: PAIR sockets over ipc. Needs the extra `bench`; without it the runner says that it is missing."""

from __future__ import annotations

import functools
import tempfile
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from aiospin.cli.loops import run

from ..companion import Companion
from ..contract import Figures, Load, Subject, fewer
from ..measure import CpuMeter, latency, rate, round_trips

if TYPE_CHECKING:
    import zmq.asyncio

    Role = Callable[["zmq.asyncio.Socket", Load], Awaitable[Figures]]

LOOP = "asyncio"


async def _with_socket(verb: str, url: str, load: Load, role: Role) -> Figures:
    import zmq
    import zmq.asyncio

    context = zmq.asyncio.Context()
    pair = context.socket(zmq.PAIR)
    try:
        getattr(pair, verb)(url)
        return await role(pair, load)
    finally:
        pair.close(linger=5000)
        context.term()


def _peer(role: Role, url: str, load: Load) -> None:
    run(_with_socket("connect", url, load, role), LOOP)


def _play(mine: Role, theirs: Role, load: Load) -> Figures:
    import zmq.asyncio  # noqa: F401  (missing: say so before a peer starts)

    with tempfile.TemporaryDirectory(prefix="aiospin-bench-") as folder:
        url = f"ipc://{folder}/socket"
        with Companion(_peer, theirs, url, load) as peer:
            figures = run(_with_socket("bind", url, load, mine), LOOP)
            peer.result()
            return figures


async def _echo(pair: zmq.asyncio.Socket, load: Load) -> Figures:
    for _ in range(load.count):
        await pair.send(await pair.recv())
    return {}


async def _ping(pair: zmq.asyncio.Socket, load: Load) -> Figures:
    payload = bytes(load.nbytes)
    clock = time.perf_counter_ns
    stamps = [0] * load.count
    for n in range(load.count):
        await pair.send(payload)
        await pair.recv()
        stamps[n] = clock()
    return round_trips(stamps)


async def _paced(pair: zmq.asyncio.Socket, load: Load) -> Figures:
    import asyncio

    rest = bytes(load.nbytes - 8)
    for _ in range(load.count):
        await asyncio.sleep(load.interval)
        await pair.send(time.perf_counter_ns().to_bytes(8, "little") + rest)
    await pair.recv()
    return {}


async def _take_paced(pair: zmq.asyncio.Socket, load: Load) -> Figures:
    took = []
    await pair.recv()
    cpu = CpuMeter()
    for _ in range(load.count - 1):
        sent = await pair.recv()
        took.append(time.perf_counter_ns() - int.from_bytes(sent[:8], "little"))
    used = cpu.percent()
    await pair.send(b"done")
    return {**latency(took), "cpu_percent": used}


async def _flood(pair: zmq.asyncio.Socket, load: Load) -> Figures:
    payload = bytes(load.nbytes)
    for _ in range(load.count):
        await pair.send(payload)
    await pair.recv()
    return {}


async def _take(pair: zmq.asyncio.Socket, load: Load) -> Figures:
    await pair.recv()
    start = time.perf_counter_ns()
    for _ in range(load.count - 1):
        await pair.recv()
    figures = rate(load, load.count - 1, start)
    await pair.send(b"done")
    return figures


SUBJECT = Subject(
    "pyzmq asyncio",
    {
        "async_pingpong": functools.partial(_play, _ping, _echo),
        "cadence": functools.partial(_play, _take_paced, _paced),
        "throughput_async": lambda load: _play(_take, _flood, fewer(load)),
    },
)
