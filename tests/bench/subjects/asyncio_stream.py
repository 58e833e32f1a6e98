"""A unix socket spoken through StreamReader and StreamWriter, on uvloop and on asyncio: what async programs use now."""

from __future__ import annotations

import asyncio
import functools
import socket
import tempfile
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from aiospin.cli.loops import LOOPS, run

from ..companion import Companion
from ..contract import Case, Figures, Load, Subject, fewer
from ..measure import CpuMeter, latency, rate, round_trips
from ..pace import compare_lags, ticks, timer_lags

T = TypeVar("T")
Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[T]]


async def _serve(path: str, talk: Talk[T]) -> T:
    """Accepts one connection at `path` and returns what `talk` makes of it."""
    answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            answer.set_result(await talk(reader, writer))
        except (OSError, EOFError) as error:
            answer.set_exception(error)
        finally:
            writer.close()

    server = await asyncio.start_unix_server(accepted, path)
    async with server:
        return await answer


async def _echo(path: str, load: Load) -> None:
    reader, writer = await asyncio.open_unix_connection(path)
    for _ in range(load.count):
        writer.write(await reader.readexactly(load.nbytes))
    writer.close()
    await writer.wait_closed()


async def _paced(path: str, load: Load) -> None:
    _, writer = await asyncio.open_unix_connection(path)
    rest = bytes(load.nbytes - 8)
    for _ in range(load.count):
        await asyncio.sleep(load.interval)
        writer.write(time.perf_counter_ns().to_bytes(8, "little") + rest)
    writer.close()
    await writer.wait_closed()


async def _flood(path: str, load: Load) -> None:
    _, writer = await asyncio.open_unix_connection(path)
    payload = bytes(load.nbytes)
    for _ in range(load.count):
        writer.write(payload)
        await writer.drain()
    writer.close()
    await writer.wait_closed()


def _peer(loop: str, role: Callable[[str, Load], Awaitable[None]], path: str, load: Load) -> None:
    async def connect() -> None:
        while True:
            try:
                return await role(path, load)
            except (FileNotFoundError, ConnectionRefusedError):
                await asyncio.sleep(0.01)

    run(connect(), loop)


def _play(loop: str, role: Callable[[str, Load], None], load: Load, talk: Talk[T]) -> T:
    """Runs `talk` in this process on `loop`, and `role` at the other end of the socket."""
    with tempfile.TemporaryDirectory(prefix="aiospin-bench-") as folder:
        path = f"{folder}/socket"
        with Companion(role, path, load):
            return run(_serve(path, talk), loop)


def pingpong(loop: str, load: Load) -> Figures:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Figures:
        payload = bytes(load.nbytes)
        clock = time.perf_counter_ns
        stamps = [0] * load.count
        for n in range(load.count):
            writer.write(payload)
            await reader.readexactly(load.nbytes)
            stamps[n] = clock()
        return round_trips(stamps)

    return _play(loop, functools.partial(_peer, loop, _echo), load, talk)


def cadence(loop: str, load: Load) -> Figures:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Figures:
        took = []
        await reader.readexactly(load.nbytes)
        cpu = CpuMeter()
        for _ in range(load.count - 1):
            sent = await reader.readexactly(load.nbytes)
            took.append(time.perf_counter_ns() - int.from_bytes(sent[:8], "little"))
        return {**latency(took), "cpu_percent": cpu.percent()}

    return _play(loop, functools.partial(_peer, loop, _paced), load, talk)


def throughput(loop: str, load: Load) -> Figures:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Figures:
        await reader.readexactly(load.nbytes)
        start = time.perf_counter_ns()
        for _ in range(load.count - 1):
            await reader.readexactly(load.nbytes)
        return rate(load, load.count - 1, start)

    return _play(loop, functools.partial(_peer, loop, _flood), load, talk)


def _rated(path: str, load: Load) -> None:
    """Sends by the clock from a plain blocking socket, so that no loop of the sender's blurs the schedule."""
    with socket.socket(socket.AF_UNIX) as sender:
        while sender.connect_ex(path):
            time.sleep(0.01)
        payload = bytes(load.nbytes)
        sender.sendall(payload)
        for _ in ticks(load.interval, load.seconds):
            sender.sendall(payload)


def lag(loop: str, load: Load) -> Figures:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> list[float]:
        async def take() -> None:
            while await reader.read(load.nbytes):
                pass

        await reader.readexactly(load.nbytes)
        taking = asyncio.ensure_future(take())
        lags = await timer_lags(load.seconds * 0.9)
        await taking
        return lags

    def phase(load: Load) -> list[float]:
        return _play(loop, _rated, load, talk)

    return compare_lags(load, phase)


def _cases(loop: str) -> dict[str, Case]:
    return {
        "async_pingpong": functools.partial(pingpong, loop),
        "cadence": functools.partial(cadence, loop),
        "throughput_async": lambda load: throughput(loop, fewer(load)),
        "lag": functools.partial(lag, loop),
    }


SUBJECTS = tuple(Subject(f"stream {loop}", _cases(loop)) for loop in LOOPS)
