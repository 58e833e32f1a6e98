"""What is measured: each benchmark drives one side's queue between two processes, and returns its figures.

Guarantee: both sides run the same lines; a payload that did not arrive as it was sent raises instead of being counted.
Assumption: CLOCK_MONOTONIC, which time.perf_counter_ns reads here, is one clock for all processes of the machine.
"""

from __future__ import annotations

import resource
import select
import statistics
from collections.abc import Callable, Mapping
from time import perf_counter_ns
from typing import Any

from peers_link import Link, Part

GAP = 0.005
"""seconds between the messages of the cadence"""
MIB = 1 << 20
TENSOR = 10 * MIB
SMALL_CHUNKS = {"max_chunk_bytes": 4 * MIB, "max_chunks": 6}  # what vLLM's groups use

Figures = Mapping[str, float]


def cpu_seconds() -> float:
    """Return the CPU time of this process so far, of all of its threads, in seconds."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def pass_time(until: float) -> None:
    """Wait until `perf_counter_ns` has reached `until`, off the CPU."""
    while (left := until - perf_counter_ns()) > 0:
        select.select((), (), (), left / 1e9)


# --- one small object, there and back


def echo(part: Part, count: int) -> None:
    """Send back what comes, that many times."""
    reading, writing = part.reading[-1], part.writing[-1]
    for _ in range(count):
        writing.enqueue(reading.dequeue())


def ping_pong(link: Link, scale: float) -> Figures:
    """One way without a gap: half a round trip, in seconds, the median."""
    count = int(3000 * scale) + 10
    there, back = link.open(), link.open_back()
    link.order("peers_benchmarks:echo", count)
    trips = []
    for number in range(count):
        started = perf_counter_ns()
        there.enqueue(("step", number))
        answer = back.dequeue()
        trips.append(perf_counter_ns() - started)
        if answer != ("step", number):
            raise ValueError(f"sent ('step', {number}), got {answer!r}")
    link.answer()
    return {"one-way": statistics.median(trips[len(trips) // 10 :]) / 2e9}


# --- one small object every 5 ms


def listen(part: Part, count: int) -> tuple[list[int], float]:
    """Return the delay of each of the next messages, in nanoseconds, and the CPU seconds per second meanwhile."""
    queue = part.reading[-1]
    queue.dequeue()
    cpu, started = cpu_seconds(), perf_counter_ns()
    delays = []
    for number in range(count):
        name, sent, stamp = queue.dequeue()
        delays.append(perf_counter_ns() - stamp)
        if (name, sent) != ("step", number):
            raise ValueError(f"sent ('step', {number}), got {(name, sent)!r}")
    return delays, (cpu_seconds() - cpu) / (perf_counter_ns() - started) * 1e9


def cadence(link: Link, scale: float) -> Figures:
    """One way at a gap of 5 ms, in seconds, the median; and the reader's CPU seconds per second meanwhile."""
    count = int(400 * scale) + 10
    queue = link.open()
    link.order("peers_benchmarks:listen", count)
    due = float(perf_counter_ns())
    queue.enqueue("begin")
    for number in range(count):
        due += GAP * 1e9
        pass_time(due)
        queue.enqueue(("step", number, perf_counter_ns()))
    delays, cpu = link.answer()
    return {"one-way": statistics.median(delays) / 1e9, "cpu": cpu}


# --- 64 bytes, as fast as it goes


def drain(part: Part) -> float:
    """Count what comes until the empty message. Returns messages per second."""
    queue = part.reading[-1]
    count = 0
    queue.dequeue()
    started = perf_counter_ns()
    while message := queue.dequeue():
        if len(message) != 64:
            raise ValueError(f"sent 64 bytes, got {len(message)}")
        count += 1
    return count / (perf_counter_ns() - started) * 1e9


def small_rate(link: Link, scale: float) -> Figures:
    """Messages of 64 bytes per second."""
    queue = link.open()
    link.order("peers_benchmarks:drain")
    message = bytes(range(64))
    enough = perf_counter_ns() + scale * 1e9
    while perf_counter_ns() < enough:
        for _ in range(64):
            queue.enqueue(message)
    queue.enqueue(b"")
    return {"rate": link.answer()}


# --- tensors of 10 MiB


def take_tensors(
    part: Part, *, acknowledge: bool = False, copy: bool = False, write: bool = False
) -> tuple[float, list[int]]:
    """Take tensors until None comes. Returns how many per second came, and each one's delay in nanoseconds.

    `acknowledge`: the writer waits on the pipe until each is taken. `copy`: each is copied out, as to a device.
    `write`: each is written to in place.
    """
    import torch

    queue = part.reading[-1]
    own = torch.zeros(TENSOR, dtype=torch.uint8)
    delays = []
    started = 0
    while (message := queue.dequeue()) is not None:
        stamp, tensor = message
        delays.append(perf_counter_ns() - stamp)
        if copy:
            own.copy_(tensor)
        if write:
            tensor.bitwise_or_(1)  # which 17 has
        if tensor.numel() != TENSOR or int(tensor[0]) != 17 or int(tensor[-1]) != 17:
            raise ValueError(f"a tensor came broken: {tensor!r}")
        del message, tensor  # a queue may have lent it
        started = started or perf_counter_ns()
        if acknowledge:
            part.pipe.send(None)
    return (len(delays) - 1) / (perf_counter_ns() - started) * 1e9, delays


def send_tensors(link: Link, queue: Any, scale: float, tensor: Any, order: str) -> float:
    """Send for `scale` seconds as fast as it goes. Returns how many per second were taken."""
    link.order(order)
    enough = perf_counter_ns() + scale * 1e9
    while perf_counter_ns() < enough:
        queue.enqueue((perf_counter_ns(), tensor))
    queue.enqueue(None)
    rate: float = link.answer()[0]
    return rate


def _tensor() -> Any:
    import torch

    return torch.full((TENSOR,), 17, dtype=torch.uint8)


def tensors(link: Link, scale: float, **chunks: int) -> Figures:
    """Tensors of 10 MiB per second, and one way of one at a time, in seconds, the median."""
    tensor, queue = _tensor(), link.open(**chunks)
    rate = send_tensors(link, queue, scale, tensor, "peers_benchmarks:take_tensors")
    link.order("peers_benchmarks:acknowledge_tensors")
    for _ in range(int(30 * scale) + 3):
        queue.enqueue((perf_counter_ns(), tensor))
        link.pipe.recv()
    queue.enqueue(None)
    _, delays = link.answer()
    return {"rate": rate, "one-way": statistics.median(delays) / 1e9}


def acknowledge_tensors(part: Part) -> tuple[float, list[int]]:
    """`take_tensors`, one at a time."""
    return take_tensors(part, acknowledge=True)


def tensors_in_small_chunks(link: Link, scale: float) -> Figures:
    """`tensors`, through chunks of 4 MiB."""
    return tensors(link, scale, **SMALL_CHUNKS)


def copy_tensors(part: Part) -> tuple[float, list[int]]:
    """`take_tensors`, reading every byte."""
    return take_tensors(part, copy=True)


def tensors_copied(link: Link, scale: float) -> Figures:
    """Tensors of 10 MiB per second, of which the reader reads every byte."""
    return {"rate": send_tensors(link, link.open(), scale, _tensor(), "peers_benchmarks:copy_tensors")}


def write_tensors(part: Part) -> Any:
    """Take tensors, and write to every byte of each."""
    return take_tensors(part, write=True)


def tensors_written(link: Link, scale: float) -> Figures:
    """Tensors of 10 MiB per second, which the reader changes in place."""
    return {"rate": send_tensors(link, link.open(), scale, _tensor(), "peers_benchmarks:write_tensors")}


Drive = Callable[[Link, float], Figures]

DRIVES: Mapping[str, Drive] = {
    "ping-pong": ping_pong,
    "cadence": cadence,
    "small": small_rate,
    "tensors": tensors,
    "tensors-4MiB": tensors_in_small_chunks,
    "tensors-copied": tensors_copied,
    "tensors-written": tensors_written,
}
