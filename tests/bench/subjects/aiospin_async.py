"""aiospin awaited, on uvloop and on asyncio: `await acquire_read()` and `await aput()`, and batches."""

from __future__ import annotations

import asyncio
import functools
import time

from aiospin import Queue, QueueClosed, QueueReader, QueueWriter
from aiospin.cli.loops import LOOPS, run

from ..companion import Companion
from ..contract import Case, Figures, Load, Subject
from ..measure import CpuMeter, latency, rate, round_trips
from ..pace import compare_lags, ticks, timer_lags
from .aiospin_idle import idle
from .aiospin_sync import CAPACITY, PAYLOAD_CAPACITY, flood


def _echo(queue: QueueReader[bytes], answers: QueueWriter[bytes], loop: str, load: Load) -> None:
    async def echo() -> None:
        with queue, answers:
            for _ in range(load.count):
                with await queue.acquire_read() as slot:
                    await answers.aput(slot.data)

    run(echo(), loop)


def pingpong(loop: str, load: Load) -> Figures:
    async def ping(writer: QueueWriter[bytes], reader: QueueReader[bytes]) -> Figures:
        payload = bytes(load.nbytes)
        clock = time.perf_counter_ns
        stamps = [0] * load.count
        for n in range(load.count):
            await writer.aput(payload)
            (await reader.acquire_read()).release()
            stamps[n] = clock()
        return round_trips(stamps)

    with (
        Queue[bytes](readers=1, capacity=CAPACITY) as there,
        Queue[bytes](readers=1, capacity=CAPACITY) as back,
        Companion(_echo, there.reader(0), back.writer(), loop, load),
        there.writer() as writer,
        back.reader(0) as reader,
    ):
        return run(ping(writer, reader), loop)


def _paced(writer: QueueWriter[bytes], loop: str, load: Load) -> None:
    async def send() -> None:
        rest = bytes(load.nbytes - 8)
        with writer:
            for _ in range(load.count):
                await asyncio.sleep(load.interval)
                await writer.aput(time.perf_counter_ns().to_bytes(8, "little"), rest)

    run(send(), loop)


def cadence(loop: str, load: Load) -> Figures:
    async def take(reader: QueueReader[bytes]) -> Figures:
        took = []
        (await reader.acquire_read()).release()
        cpu = CpuMeter()
        for _ in range(load.count - 1):
            with await reader.acquire_read() as slot:
                took.append(time.perf_counter_ns() - int.from_bytes(slot.data[:8], "little"))
        return {**latency(took), "cpu_percent": cpu.percent()}

    with (
        Queue[bytes](readers=1, capacity=CAPACITY) as queue,
        Companion(_paced, queue.writer(), loop, load),
        queue.reader(0) as reader,
    ):
        return run(take(reader), loop)


def _flood(writer: QueueWriter[bytes], loop: str, load: Load) -> None:
    async def send() -> None:
        payload = bytes(load.nbytes)
        with writer:
            for _ in range(load.count):
                await writer.aput(payload)

    run(send(), loop)


async def _take(reader: QueueReader[bytes], load: Load) -> Figures:
    (await reader.acquire_read()).release()
    start = time.perf_counter_ns()
    for _ in range(load.count - 1):
        (await reader.acquire_read()).release()
    return rate(load, load.count - 1, start)


def throughput(loop: str, load: Load) -> Figures:
    with (
        Queue[bytes](readers=1, capacity=CAPACITY) as queue,
        Companion(_flood, queue.writer(), loop, load),
        queue.reader(0) as reader,
    ):
        return run(_take(reader, load), loop)


def _flood_in_batches(writer: QueueWriter[bytes], loop: str, load: Load) -> None:
    async def send() -> None:
        payloads = [bytes(load.nbytes)] * load.batch
        with writer:
            for _ in range(load.count // load.batch):
                await writer.aput_many(payloads)

    run(send(), loop)


def batch(loop: str, load: Load) -> Figures:
    async def take(reader: QueueReader[bytes]) -> Figures:
        taken = 0
        await reader.aget()
        start = time.perf_counter_ns()
        try:
            while True:
                taken += len(await reader.aget_many(load.batch))
        except QueueClosed:
            return rate(load, taken, start)

    with (
        Queue[bytes](readers=1, capacity=CAPACITY) as queue,
        Companion(_flood_in_batches, queue.writer(), loop, load),
        queue.reader(0) as reader,
    ):
        return run(take(reader), loop)


def payload(loop: str, load: Load) -> Figures:
    async def take(reader: QueueReader[bytes]) -> Figures:
        warm_up = load.count // 10
        for _ in range(warm_up):
            (await reader.acquire_read()).release()
        return await _take(reader, Load(load.count - warm_up, load.nbytes))

    with (
        Queue[bytes](readers=1, capacity=PAYLOAD_CAPACITY) as queue,
        Companion(flood, queue.writer(), load),
        queue.reader(0) as reader,
    ):
        return run(take(reader), loop)


def _rated(writer: QueueWriter[bytes], load: Load) -> None:
    payload = bytes(load.nbytes)
    with writer:
        writer.put(payload)
        for _ in ticks(load.interval, load.seconds):
            writer.put(payload)


def lag(loop: str, load: Load) -> Figures:
    async def take_all(reader: QueueReader[bytes]) -> None:
        try:
            while True:
                (await reader.acquire_read()).release()
        except QueueClosed:
            return

    async def listen(reader: QueueReader[bytes], load: Load) -> list[float]:
        (await reader.acquire_read()).release()
        taking = asyncio.ensure_future(take_all(reader))
        lags = await timer_lags(load.seconds * 0.9)
        await taking
        return lags

    def phase(load: Load) -> list[float]:
        with (
            Queue[bytes](readers=1, capacity=CAPACITY) as queue,
            Companion(_rated, queue.writer(), load),
            queue.reader(0) as reader,
        ):
            return run(listen(reader, load), loop)

    return compare_lags(load, phase)


def _park(queue: QueueReader[bytes], loop: str) -> None:
    async def park() -> None:
        with queue:
            async for _ in queue:
                pass

    run(park(), loop)


def _cases(loop: str) -> dict[str, Case]:
    return {
        "async_pingpong": functools.partial(pingpong, loop),
        "cadence": functools.partial(cadence, loop),
        "idle": lambda load: idle(load, _park, loop),
        "throughput_async": functools.partial(throughput, loop),
        "batch_async": functools.partial(batch, loop),
        "payload": functools.partial(payload, loop),
        "lag": functools.partial(lag, loop),
    }


SUBJECTS = tuple(Subject(f"aiospin {loop}", _cases(loop)) for loop in LOOPS)
