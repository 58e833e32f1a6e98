"""Many of everything, in one process: queues, readers, loops, comings and goings. Sizes are arguments.

Guarantee: each scene checks every message that passes, returns its figures as text, and leaves what it found.
Assumption: imported by tests and by .ci/many; the caller sees to the limit on open files.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any

from ends import RING, content, size_of
from footprints import MOST_KIB_PER_100, Flat, Held
from programs import Program

import aiospin
from aiospin import WaitPolicy, WaitSet

LoopFactory = Callable[[], asyncio.AbstractEventLoop]
PARKED = WaitPolicy(maximum_us=0.5, inline_us=0.0)
MONITORED = WaitPolicy(core_share=1.0, inline_us=0.0, parks=False)
DESCRIPTORS_PER_QUEUE = 4  # with one reader: the segment twice, and a bell for each of two roles


def suspended(end: Any) -> bool:
    return len(end._line._waiting) + (end._parked_operation is not None) > 0


def queues(count: int, new_loop: LoopFactory) -> str:
    """`count` queues at once: a message through each by blocking calls, by a loop in which all wait, by a wait set."""
    new_loop().close()  # libuv opens a pipe with its first loop, which stays
    before = Held.now()
    with contextlib.ExitStack() as stack:
        made: list[aiospin.Queue[bytes]] = [stack.enter_context(aiospin.Queue(capacity=RING)) for _ in range(count)]
        full = Held.now()
        assert full.descriptors - before.descriptors == DESCRIPTORS_PER_QUEUE * count, (before, full)
        writers = [stack.enter_context(queue.writer()) for queue in made]
        readers = [stack.enter_context(queue.reader(0)) for queue in made]
        assert Held.now().descriptors == full.descriptors, "an end in the owner's process takes none"
        for number, writer in enumerate(writers):
            writer.put(content(number, 200))
        for number, reader in enumerate(readers):
            assert reader.get() == content(number, 200)
        loop = new_loop()
        try:
            loop.run_until_complete(_each_waits(writers, readers))
            loop.run_until_complete(_set_waits(writers, readers))
        finally:
            loop.close()
    del made, writers, readers, writer, reader, loop
    after = Held.now()
    assert (after.descriptors, after.mappings) == (before.descriptors, before.mappings), (before, after)
    each = (full.descriptors - before.descriptors) / count
    return (
        f"{count} queues at once: {each:g} descriptors each, all given back; every one answered in a thread and a loop"
    )


async def _each_waits(writers: list[Any], readers: list[Any]) -> None:
    waiting = [asyncio.ensure_future(reader.aget()) for reader in readers]
    while not all(map(suspended, readers)):
        await asyncio.sleep(0)
    for number, writer in enumerate(writers):
        await writer.aput(content(number, 300))
    for number, message in enumerate(await asyncio.gather(*waiting)):
        assert message == content(number, 300)


async def _set_waits(writers: list[Any], readers: list[Any]) -> None:
    places = {id(reader): number for number, reader in enumerate(readers)}
    with WaitSet(readers) as waits:
        for number in range(0, len(readers), max(1, len(readers) // 20)):
            waiting = asyncio.ensure_future(waits.wait())
            while waits._waiter is None:
                await asyncio.sleep(0)
            writers[number].put(content(number, 400))
            [member] = await waiting
            assert places[id(member)] == number and member.get_nowait() == content(number, 400)  # type: ignore[union-attr]


READ_SEVERAL = """
    handles, count = arguments
    ends = [aiospin.attach(handle) for handle in handles]
    for end in ends:
        end.__enter__()
    say(len(os.listdir("/proc/self/fd")) - 1)
    got = [0] * len(ends)
    with aiospin.WaitSet(ends) as waits:
        while min(got) < count:
            for end in waits.wait_sync():
                place = ends.index(end)
                for message in end.get_many(1000):
                    assert message == content(got[place], size_of(got[place], 500)), got[place]
                    got[place] += 1
    for end in ends:
        end.close()
    say(got)
"""


def readers_in_processes(processes: int, each: int, count: int) -> str:
    """One queue, `processes` x `each` readers: all get every message, in order."""
    total = processes * each
    with contextlib.ExitStack() as stack:
        queue: aiospin.Queue[bytes] = stack.enter_context(aiospin.Queue(readers=total, capacity="256 KiB"))
        ranks = [queue.reader(rank) for rank in range(total)]
        handles = [str(rank.handle) for rank in ranks]
        for rank in ranks:
            rank.close()
        programs = [
            stack.enter_context(Program(READ_SEVERAL, [handles[first : first + each], count]))
            for first in range(0, total, each)
        ]
        opened = [program.hear() for program in programs]
        with queue.writer() as writer:
            for sequence in range(count):
                writer.put(content(sequence, _size_of(sequence)))
            for program in programs:
                assert program.hear() == [count] * each
        for program in programs:
            program.finish()
    return (
        f"{total} readers on one queue, in {processes} processes of {opened[0]} descriptors: {count} messages to each"
    )


def _size_of(sequence: int) -> int:
    return size_of(sequence, 500)


def readers_in_threads(total: int, count: int) -> str:
    """One queue, a thread per reader, all in this process."""
    with contextlib.ExitStack() as stack:
        queue: aiospin.Queue[bytes] = stack.enter_context(aiospin.Queue(readers=total, capacity="256 KiB"))
        writer = stack.enter_context(queue.writer())
        ranks = [stack.enter_context(queue.reader(rank)) for rank in range(total)]
        got = [0] * total

        def read(rank: int) -> None:
            for message in ranks[rank]:
                assert message == content(got[rank], _size_of(got[rank]))
                got[rank] += 1

        reading = [threading.Thread(target=read, args=(rank,)) for rank in range(total)]
        for thread in reading:
            thread.start()
        for sequence in range(count):
            writer.put(content(sequence, _size_of(sequence)))
        writer.close()
        for thread in reading:
            thread.join()
        assert got == [count] * total
    return f"{total} readers on one queue, in threads: {count} messages to each"


def loops(count: int, every: int, new_loop: LoopFactory, bound: float = MOST_KIB_PER_100) -> str:
    """`count` loops, one after the other, each with waits in every stage, half of them answered and half left."""
    flat = Flat(count, every)
    with contextlib.ExitStack() as stack:
        pairs = []
        for policy in (PARKED, MONITORED, None):
            queue: aiospin.Queue[bytes] = stack.enter_context(aiospin.Queue(capacity=RING, policy=policy))
            pairs.append((stack.enter_context(queue.writer()), stack.enter_context(queue.reader(0))))
        for number in range(count + 1):
            flat.sample(number)
            loop = new_loop()
            loop.run_until_complete(_in_every_stage(pairs, number))
            loop.close()
            del loop
    return f"{count} loops: {flat.judge(bound)}"


async def _in_every_stage(pairs: list[Any], number: int) -> None:
    readers = [reader for _, reader in pairs]
    waiting = [asyncio.ensure_future(reader.aget()) for reader in readers]
    while not all(map(suspended, readers)):
        await asyncio.sleep(0)
    for writer, _ in pairs:
        await writer.aput(content(number, 100))
    for message in await asyncio.gather(*waiting):
        assert message == content(number, 100)
    left = [asyncio.ensure_future(reader.aget(timeout=100)) for reader in readers]
    while not all(map(suspended, readers)):
        await asyncio.sleep(0)
    for task in left:
        task.cancel()
    await asyncio.wait(left)


def comings_and_goings(count: int, every: int, bound: float = MOST_KIB_PER_100) -> str:
    """Attach a writer and a reader of another process's queue by handle, pass a message, and go, for good or not."""
    flat = Flat(count, every)
    program = """
        with aiospin.Queue(capacity=RING) as queue:
            ends = [queue.writer(), queue.reader(0)]
            say([str(end.handle) for end in ends])
            hear()
            for end in ends:
                end.close()
    """
    with Program(program) as owner:
        writing, reading = owner.hear()
        for number in range(count + 1):
            flat.sample(number)
            writer: Any = aiospin.attach(writing)
            reader: Any = aiospin.attach(reading)
            with reader, writer:
                writer.put(content(number, 100))
                assert reader.get() == content(number, 100)
                for end in (reader, writer):
                    if number % 2:
                        end.detach()
                    else:
                        end.close()
            del writer, reader, end
        owner.say()
        owner.finish()
    return f"{count} x attach by handle, message, detach or close: {flat.judge(bound)}"


def comings_and_goings_here(count: int, every: int, bound: float = MOST_KIB_PER_100) -> str:
    """The same in the owner's process, by `queue.reader()`, `queue.writer()` and by handle, with an awaited message."""
    flat = Flat(count, every)

    async def main() -> None:
        with aiospin.Queue[bytes](capacity=RING) as queue:
            for number in range(count + 1):
                flat.sample(number)
                end = queue.reader(0)
                handle = str(end.handle)
                end.close()
                with aiospin.attach(handle) as reader, queue.writer() as writer:
                    waiting = asyncio.ensure_future(reader.aget())
                    while not suspended(reader):
                        await asyncio.sleep(0)
                    writer.put(content(number, 100))
                    assert await waiting == content(number, 100)
                    writer.detach()

    asyncio.run(main())
    return f"{count} x reader(), writer(), awaited message, close: {flat.judge(bound)}"


def one_after_the_other(count: int, every: int, bound: float = MOST_KIB_PER_100) -> str:
    """`count` queues made and closed, each with all of its ends, and a wait set."""
    flat = Flat(count, every)
    for number in range(count + 1):
        flat.sample(number)
        with aiospin.Queue[bytes](capacity=RING) as queue, queue.writer() as writer, queue.reader(0) as reader:
            with WaitSet([reader]) as waits:
                writer.put(content(number, 100))
                assert waits.wait_sync() == [reader]
            assert reader.get() == content(number, 100)
    return f"{count} queues, one after the other: {flat.judge(bound)}"
