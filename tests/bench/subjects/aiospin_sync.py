"""aiospin through its blocking calls: owned bytes by put and get, and batches of them; leases for large payloads."""

from __future__ import annotations

import time

from aiospin import Queue, QueueClosed, QueueReader, QueueWriter

from ..companion import Companion
from ..contract import Figures, Load, Subject
from ..measure import CpuMeter, latency, rate, round_trips
from .aiospin_idle import idle

CAPACITY = "1 MiB"
PAYLOAD_CAPACITY = "32 MiB"


def _echo(queue: QueueReader[bytes], answers: QueueWriter[bytes], load: Load) -> None:
    with queue, answers:
        for _ in range(load.count):
            answers.put(queue.get())


def pingpong(load: Load) -> Figures:
    payload = bytes(load.nbytes)
    clock = time.perf_counter_ns
    stamps = [0] * load.count
    with (
        Queue[bytes](readers=1, capacity=CAPACITY) as there,
        Queue[bytes](readers=1, capacity=CAPACITY) as back,
        Companion(_echo, there.reader(0), back.writer(), load),
        there.writer() as writer,
        back.reader(0) as reader,
    ):
        for n in range(load.count):
            writer.put(payload)
            reader.get()
            stamps[n] = clock()
    return round_trips(stamps)


def paced(writer: QueueWriter[bytes], load: Load) -> None:
    rest = bytes(load.nbytes - 8)
    with writer:
        for _ in range(load.count):
            time.sleep(load.interval)
            writer.put(time.perf_counter_ns().to_bytes(8, "little"), rest)


def cadence(load: Load) -> Figures:
    took = []
    with (
        Queue[bytes](readers=1, capacity=CAPACITY) as queue,
        Companion(paced, queue.writer(), load),
        queue.reader(0) as reader,
    ):
        reader.get()
        cpu = CpuMeter()
        for _ in range(load.count - 1):
            sent = reader.get()
            took.append(time.perf_counter_ns() - int.from_bytes(sent[:8], "little"))
        used = cpu.percent()
    return {**latency(took), "cpu_percent": used}


def flood(writer: QueueWriter[bytes], load: Load) -> None:
    payload = bytes(load.nbytes)
    with writer:
        for _ in range(load.count):
            writer.put(payload)


def throughput(load: Load) -> Figures:
    with (
        Queue[bytes](readers=1, capacity=CAPACITY) as queue,
        Companion(flood, queue.writer(), load),
        queue.reader(0) as reader,
    ):
        reader.get()
        start = time.perf_counter_ns()
        for _ in range(load.count - 1):
            reader.get()
        return rate(load, load.count - 1, start)


def flood_in_batches(writer: QueueWriter[bytes], load: Load) -> None:
    payloads = [bytes(load.nbytes)] * load.batch
    with writer:
        for _ in range(load.count // load.batch):
            writer.put_many(payloads)


def batch(load: Load) -> Figures:
    taken = 0
    with (
        Queue[bytes](readers=1, capacity=CAPACITY) as queue,
        Companion(flood_in_batches, queue.writer(), load),
        queue.reader(0) as reader,
    ):
        reader.get()
        start = time.perf_counter_ns()
        try:
            while True:
                taken += len(reader.get_many(load.batch))
        except QueueClosed:
            return rate(load, taken, start)


def payload(load: Load) -> Figures:
    warm_up = load.count // 10
    with (
        Queue[bytes](readers=1, capacity=PAYLOAD_CAPACITY) as queue,
        Companion(flood, queue.writer(), load),
        queue.reader(0) as reader,
    ):
        start = 0
        for n in range(load.count):
            with reader.acquire_read():
                if n == warm_up:
                    start = time.perf_counter_ns()
        return rate(load, load.count - warm_up - 1, start)


def _park(queue: QueueReader[bytes]) -> None:
    with queue:
        for _ in queue:
            pass


SUBJECT = Subject(
    "aiospin sync",
    {
        "sync_pingpong": pingpong,
        "cadence": cadence,
        "idle": lambda load: idle(load, _park),
        "throughput_sync": throughput,
        "batch_sync": batch,
        "payload": payload,
    },
)
