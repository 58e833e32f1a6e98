"""multiprocessing.Pipe: what the standard library offers to two processes that wait for each other."""

from __future__ import annotations

import time
from multiprocessing.connection import Connection

from ..companion import SPAWN, Companion
from ..contract import Figures, Load, Subject, fewer
from ..measure import CpuMeter, latency, rate, round_trips


def _echo(connection: Connection, count: int) -> None:
    for _ in range(count):
        connection.send_bytes(connection.recv_bytes())


def pingpong(load: Load) -> Figures:
    mine, theirs = SPAWN.Pipe()
    payload = bytes(load.nbytes)
    clock = time.perf_counter_ns
    stamps = [0] * load.count
    with Companion(_echo, theirs, load.count):
        for n in range(load.count):
            mine.send_bytes(payload)
            mine.recv_bytes()
            stamps[n] = clock()
    return round_trips(stamps)


def _paced(connection: Connection, load: Load) -> None:
    rest = bytes(load.nbytes - 8)
    for _ in range(load.count):
        time.sleep(load.interval)
        connection.send_bytes(time.perf_counter_ns().to_bytes(8, "little") + rest)


def cadence(load: Load) -> Figures:
    mine, theirs = SPAWN.Pipe(duplex=False)
    took = []
    with Companion(_paced, theirs, load):
        mine.recv_bytes()
        cpu = CpuMeter()
        for _ in range(load.count - 1):
            sent = mine.recv_bytes()
            took.append(time.perf_counter_ns() - int.from_bytes(sent[:8], "little"))
        used = cpu.percent()
    return {**latency(took), "cpu_percent": used}


def _flood(connection: Connection, load: Load) -> None:
    payload = bytes(load.nbytes)
    for _ in range(load.count):
        connection.send_bytes(payload)


def throughput(load: Load) -> Figures:
    mine, theirs = SPAWN.Pipe(duplex=False)
    with Companion(_flood, theirs, load):
        mine.recv_bytes()
        start = time.perf_counter_ns()
        for _ in range(load.count - 1):
            mine.recv_bytes()
        return rate(load, load.count - 1, start)


SUBJECT = Subject(
    "pipe",
    {
        "sync_pingpong": pingpong,
        "cadence": cadence,
        "throughput_sync": lambda load: throughput(fewer(load)),
        "payload": lambda load: throughput(fewer(load)),
    },
)
