"""What the tests of awaited calls share: ends of a queue, payloads that prove themselves, and peer processes.

Guarantee: `pair` and `ends` check on the way out that no slot is leaked.
Assumption: every payload is made by `content`, so that its bytes say which message it is.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import aiospin
from aiospin import Full, Queue, QueueReader, QueueWriter

SMALLEST = "64 KiB"
WHOLE = 1000  # payload bytes of the slots that fill a ring
STRIDE = 1088  # bytes that such a slot takes
FITS = 65536 // STRIDE  # such slots in the smallest ring
SPAWN = multiprocessing.get_context("spawn")


def content(sequence: int, size: int | None = None) -> bytes:
    """The bytes of message `sequence`; 8 to 198 of them unless told otherwise."""
    size = 8 + sequence % 191 if size is None else size
    word = sequence.to_bytes(8, "little")
    return (word * (size // 8 + 1))[:size]


def number(payload: Any) -> int:
    """Which message it is. AssertionError unless every byte is right."""
    payload = bytes(payload)
    sequence = int.from_bytes(payload[:8], "little")
    assert payload == content(sequence, len(payload)), f"message {sequence} is damaged"
    return sequence


def numbers(payloads: Any) -> list[int]:
    return [number(payload) for payload in payloads]


@contextlib.contextmanager
def ends(readers: int = 1, **options: Any) -> Iterator[tuple[Queue[Any], QueueWriter[Any], list[QueueReader[Any]]]]:
    """A queue with every role claimed here. No lease may be left at the end."""
    with Queue(readers=readers, **{"capacity": SMALLEST, **options}) as queue:
        writer = queue.writer()
        ranks = [queue.reader(rank) for rank in range(readers)]
        with contextlib.ExitStack() as stack:
            for end in (writer, *ranks):
                stack.enter_context(end)
            yield queue, writer, ranks
            assert queue.statistics().leases == 0, "a slot is leaked"


@contextlib.contextmanager
def pair(**options: Any) -> Iterator[tuple[Queue[Any], QueueWriter[Any], QueueReader[Any]]]:
    """A queue with one reader."""
    with ends(1, **options) as (queue, writer, (reader,)):
        yield queue, writer, reader


def fill(writer: QueueWriter[Any], first: int = 0) -> int:
    """Put until there is no room; returns how many."""
    for sequence in range(first, first + 2 * FITS):
        try:
            writer.put_nowait(content(sequence, WHOLE))
        except Full:
            return sequence - first
    raise AssertionError("the ring takes more than it can hold")


def assert_whole(queue: Queue[Any], writer: QueueWriter[Any], reader: QueueReader[Any]) -> None:
    """Nothing is held or left over: the ring can be filled to its last slot and emptied again."""
    statistics = queue.statistics()
    assert (statistics.leases, statistics.depth) == (0, 0)
    assert fill(writer) == FITS
    assert numbers(reader.get_many(2 * FITS)) == list(range(FITS))
    assert queue.statistics().depth == 0


async def suspended(end: QueueReader[Any] | QueueWriter[Any], count: int = 1) -> None:
    """Let the loop turn until exactly that many operations sleep on the end."""
    while len(end._line._waiting) + (end._parked_operation is not None) != count:
        await asyncio.sleep(0)


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@contextlib.contextmanager
def peer(target: Callable[..., None], *arguments: Any) -> Iterator[Any]:
    """A process that runs `target`. Killed if it is still there at the end."""
    child = SPAWN.Process(target=target, args=arguments)
    child.start()
    try:
        yield child
    finally:
        child.kill()
        child.join()
        child.close()


def kill(child: Any) -> None:
    """SIGKILL, and wait until it is gone."""
    os.kill(child.pid, signal.SIGKILL)
    child.join()


def let_in(queue: Queue[Any], writer: QueueWriter[Any]) -> None:
    """Wait until the peer that runs `take_one_and_hold` is there in every respect."""
    writer.put(b"welcome")
    while queue.statistics().depth:
        os.sched_yield()


# what peers do


def take_one_and_hold(reader: QueueReader[Any]) -> None:
    """Take one message, and stay."""
    with reader:
        reader.get()
        signal.pause()


def put_and_hold(writer: QueueWriter[Any], first: int, count: int) -> None:
    """Put that many messages, and stay."""
    with writer:
        writer.put_many([content(sequence) for sequence in range(first, first + count)])
        signal.pause()


def put_and_close(writer: QueueWriter[Any], first: int, count: int) -> None:
    """Put that many messages, and end the stream."""
    with writer:
        writer.put_many([content(sequence) for sequence in range(first, first + count)])


def put_at_random(writer: QueueWriter[Any], count: int, seed: int) -> None:
    """Put at a cadence between none and 300 us, in bursts, and end the stream."""
    chance = random.Random(seed)
    sequence = 0
    with writer:
        while sequence < count:
            for _ in range(min(chance.choice((1, 1, 1, 2, 5, 20)), count - sequence)):
                writer.put(content(sequence))
                sequence += 1
            pause(chance.choice((0, 0, 5e-6, 2e-5, 5e-5, 3e-4)))


def pause(seconds: float) -> None:
    """Pace a load, with the precision of a clock that is watched."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        os.sched_yield()


def has_native() -> bool:
    return aiospin.backend == "native"
