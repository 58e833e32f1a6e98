"""Thousands of cancels at random moments against a peer process at a random cadence: nothing is lost, nothing twice."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from async_rig import (
    SPAWN,
    WHOLE,
    assert_whole,
    content,
    number,
    numbers,
    pause,
    peer,
    turns,
)

from aiospin import Queue, QueueClosed, QueueReader, QueueWriter

CANCELS = 2500
MESSAGES = 500


def put_until_told(writer: QueueWriter[Any], told: Any, seed: int) -> None:
    """Put in bursts with pauses of up to 300 us until anything comes through the pipe; answer how many."""
    chance = random.Random(seed)
    sequence = 0
    with writer:
        while not told.poll():
            for _ in range(chance.choice((1, 1, 1, 2, 5))):
                writer.put(content(sequence))
                sequence += 1
            pause(chance.choice((0, 2e-5, 5e-5, 1e-4, 3e-4)))
        told.send(sequence)


def take_to_the_end(reader: QueueReader[Any], told: Any, seed: int) -> None:
    """Take with pauses until the stream ends; answer with the numbers."""
    chance = random.Random(seed)
    received: list[int] = []
    with reader:
        for payload in reader:
            received.append(number(payload))
            if chance.random() < 0.5:
                pause(chance.choice((0, 2e-5, 5e-5, 1e-4)))
    told.send(received)


async def at_random(task: asyncio.Task[Any], chance: random.Random) -> None:
    """Cancel the task some time soon, unless it is faster; return when it is over."""
    how = chance.random()
    if how < 0.7:
        await turns(chance.randrange(8))
        task.cancel()
    else:
        timer = asyncio.get_running_loop().call_later(chance.random() * 1e-3, task.cancel)
        await asyncio.wait([task])
        timer.cancel()
    await asyncio.wait([task])


@pytest.mark.parametrize("policy", ["eco", "balanced", "latency"])
async def test_reads_cancelled_at_random_receive_everything_once(policy: str) -> None:
    chance = random.Random(policy)
    received: list[int] = []

    async def take(reader: QueueReader[Any], way: int) -> None:
        if way == 0:
            received.append(number(await reader.aget()))
        elif way == 1:
            async with reader.acquire_read() as slot:
                received.append(number(slot.data))
        elif way == 2:
            received.extend(numbers(await reader.aget_many(3)))
        elif way == 3:
            async for slot in reader.slots():
                received.append(number(slot.data))
        else:
            async for payload in reader:
                received.append(number(payload))

    with Queue(capacity="64 KiB", policy=policy) as queue:
        here, there = SPAWN.Pipe()
        with here, there, peer(put_until_told, queue.writer(), there, 11), queue.reader() as reader:
            cancelled = 0
            while cancelled < CANCELS or len(received) < MESSAGES:
                task = asyncio.ensure_future(take(reader, chance.randrange(5)))
                await at_random(task, chance)
                if task.cancelled():
                    cancelled += 1
                else:
                    task.result()
            here.send("enough")
            async for payload in reader:
                received.append(number(payload))
            assert received == list(range(here.recv()))
            with queue.writer() as writer:
                assert_whole(queue, writer, reader)


async def test_writes_cancelled_at_random_are_received_once_or_not_at_all() -> None:
    chance = random.Random(3)
    sent: list[int] = []

    async def put(writer: QueueWriter[Any], sequence: int) -> None:
        if sequence % 2:
            await writer.aput(content(sequence, WHOLE))
        else:
            async with writer.acquire_write(WHOLE) as slot:
                slot.data[:] = content(sequence, WHOLE)
        sent.append(sequence)

    with Queue(capacity="64 KiB") as queue:
        here, there = SPAWN.Pipe()
        with here, there, peer(take_to_the_end, queue.reader(), there, 12):
            with queue.writer() as writer:
                await queue.ready(timeout=60)
                cancelled = sequence = 0
                while cancelled < CANCELS:
                    tasks = [
                        asyncio.ensure_future(put(writer, sequence + i)) for i in range(chance.choice((1, 1, 2, 5)))
                    ]
                    sequence += len(tasks)
                    await asyncio.gather(*(at_random(task, chance) for task in tasks))
                    cancelled += sum(task.cancelled() for task in tasks)
                    if chance.random() < 0.9:
                        await fill_up(writer, sent)
            with pytest.raises(QueueClosed):
                await writer.aput(b"")
            assert here.recv() == sent


async def fill_up(writer: QueueWriter[Any], sent: list[int]) -> None:
    """Leave no room, so that the next writes wait."""
    while True:
        try:
            await writer.aput(content(10**6, WHOLE), timeout=0)
        except TimeoutError:
            return
        sent.append(10**6)
