"""Event loops: several of them, in turn and at once, closed under a wait, in debug mode, and not starved."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
import warnings
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from async_rig import FITS, assert_whole, content, ends, fill, number, numbers, pair, suspended

from aiospin import Queue, QueueClosed, QueueReader, QueueWriter, ReaderBusy, WaitPolicy, WaitSet

Run = Callable[[Coroutine[Any, Any, Any]], Any]
LoopFactory = Callable[[], asyncio.AbstractEventLoop]
PARKED = WaitPolicy(maximum_us=0.5, inline_us=0.0)
MONITORED = WaitPolicy(core_share=1.0, inline_us=0.0, parks=False)
POLICIES = pytest.mark.parametrize("policy", [PARKED, MONITORED], ids=["parked", "monitored"])


def in_threads(*works: Callable[[], None]) -> None:
    """Run them at the same time; raise what one of them raised."""
    errors: list[BaseException] = []

    def run(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)
            raise

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    before, threading.excepthook = threading.excepthook, lambda _: None
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        threading.excepthook = before
    if errors:
        raise errors[0]


async def exchange(writer: QueueWriter[Any], reader: QueueReader[Any], sequence: int) -> None:
    """One message that is waited for."""
    waiting = asyncio.ensure_future(reader.aget(timeout=60))
    await suspended(reader)
    writer.put(content(sequence))
    assert number(await waiting) == sequence


@POLICIES
def test_a_reader_moves_from_loop_to_loop(new_loop: LoopFactory, policy: WaitPolicy) -> None:
    with pair(policy=policy) as (queue, writer, reader):
        loops = [new_loop() for _ in range(3)]
        for sequence in range(60):
            loops[sequence % 3].run_until_complete(exchange(writer, reader, sequence))
        for loop in loops:
            loop.close()
        assert_whole(queue, writer, reader)


@POLICIES
def test_a_reader_outlives_the_loops_it_was_used_in(run_async: Run, policy: WaitPolicy) -> None:
    with pair(policy=policy) as (queue, writer, reader):
        for sequence in range(20):
            run_async(exchange(writer, reader, sequence))
            writer.put(content(sequence))
            assert number(reader.get()) == sequence
        assert_whole(queue, writer, reader)


@POLICIES
def test_a_reader_moves_between_loops_in_threads(new_loop: LoopFactory, policy: WaitPolicy) -> None:
    with pair(policy=policy) as (queue, writer, reader):
        loops = [new_loop() for _ in range(2)]
        running = [threading.Thread(target=loop.run_forever) for loop in loops]
        for thread in running:
            thread.start()
        for sequence in range(200):
            asyncio.run_coroutine_threadsafe(exchange(writer, reader, sequence), loops[sequence % 2]).result()
        for loop, thread in zip(loops, running, strict=True):
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()
        assert_whole(queue, writer, reader)


def test_a_wait_in_another_loop_is_refused_while_one_waits(new_loop: LoopFactory) -> None:
    with pair(policy=PARKED) as (_, writer, reader):
        first, second = new_loop(), new_loop()
        waiting = first.create_task(reader.aget())
        first.run_until_complete(suspended(reader))

        async def intrude() -> None:
            with pytest.raises(ReaderBusy):
                await reader.aget()

        second.run_until_complete(intrude())
        writer.put(content(0))
        assert number(first.run_until_complete(waiting)) == 0
        first.close()
        second.close()


async def test_64_readers_on_one_loop() -> None:
    with ends(64, capacity="128 KiB") as (queue, writer, readers):

        async def consume(reader: QueueReader[Any]) -> list[int]:
            return [number(payload) async for payload in reader]

        consuming = [asyncio.create_task(consume(reader)) for reader in readers]
        for sequence in range(300):
            await writer.aput(content(sequence))
            if sequence % 50 == 0:
                for reader in readers:
                    await suspended(reader)
        writer.close()
        assert await asyncio.gather(*consuming) == [list(range(300))] * 64
        assert queue.statistics().depth == 0


async def test_64_queues_on_one_loop() -> None:
    queues = [Queue(capacity="64 KiB") for _ in range(64)]
    writers = [queue.writer() for queue in queues]
    readers = [queue.reader() for queue in queues]
    for round_ in range(3):
        waiting = [asyncio.ensure_future(reader.aget()) for reader in readers]
        for reader in readers:
            await suspended(reader)
        for index in sorted(range(64), key=lambda i: i * 37 % 64):
            writers[index].put(content(64 * round_ + index))
        assert numbers(await asyncio.gather(*waiting)) == [64 * round_ + i for i in range(64)]
    for end in (*writers, *readers, *queues):
        end.close()


def test_loops_in_several_threads_at_once(new_loop: LoopFactory) -> None:
    with ends(4) as (queue, writer, readers):
        received: list[list[int]] = [[] for _ in readers]

        def read(rank: int) -> None:
            async def consume() -> None:
                async for payload in readers[rank]:
                    received[rank].append(number(payload))

            loop = new_loop()
            loop.run_until_complete(consume())
            loop.close()

        def write() -> None:
            async def produce() -> None:
                for sequence in range(2000):
                    await writer.aput(content(sequence))
                writer.close()

            loop = new_loop()
            loop.run_until_complete(produce())
            loop.close()

        in_threads(write, *(lambda rank=rank: read(rank) for rank in range(4)))
        assert received == [list(range(2000))] * 4
        assert queue.statistics().depth == 0


@POLICIES
@pytest.mark.parametrize("which", ["reader", "writer", "wait set"])
def test_closing_a_loop_under_a_wait(
    new_loop: LoopFactory, policy: WaitPolicy, which: str, leaves_nothing: Any
) -> None:
    with pair(policy=policy) as (queue, writer, reader):
        loop = new_loop()
        if which == "reader":
            waiting = loop.create_task(reader.aget())
            loop.run_until_complete(suspended(reader))
        elif which == "writer":
            fill(writer)
            waiting = loop.create_task(writer.aput(content(0, 1000)))
            loop.run_until_complete(suspended(writer))
        else:
            waits = WaitSet([reader])
            waiting = loop.create_task(waits.wait())
            loop.run_until_complete(asyncio.sleep(0.001))
        loop.close()
        assert not waiting.done()
        if which == "writer":
            assert len(reader.get_many(1000)) == FITS
        waiting._log_destroy_pending = False  # type: ignore[attr-defined]  # asyncio's complaint is not the subject
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # so is Python's, about a coroutine that never ended
            del waiting
            gc.collect()
        if which == "wait set":
            waits.close()
        writer.put(content(0))
        assert number(reader.get()) == 0
        other = new_loop()
        other.run_until_complete(exchange(writer, reader, 7))
        other.close()
        assert_whole(queue, writer, reader)
        del loop, other


@POLICIES
def test_closing_an_end_after_its_loop(new_loop: LoopFactory, policy: WaitPolicy, leaves_nothing: Any) -> None:
    with pair(policy=policy) as (_, writer, reader):
        loop = new_loop()
        loop.run_until_complete(exchange(writer, reader, 0))
        loop.close()
        reader.close()
        writer.close()
        del loop


@POLICIES
def test_closing_an_end_from_another_thread_ends_its_wait(run_async: Run, policy: WaitPolicy) -> None:
    with pair(policy=policy) as (_, _, reader):

        async def wait() -> None:
            waiting = asyncio.ensure_future(reader.aget())
            await suspended(reader)
            closer = threading.Thread(target=reader.close)
            closer.start()
            with pytest.raises(QueueClosed):
                await waiting
            closer.join()

        run_async(wait())


@POLICIES
def test_a_message_from_another_thread_wakes_the_loop(run_async: Run, policy: WaitPolicy) -> None:
    with pair(policy=policy) as (queue, writer, reader):

        async def consume() -> list[int]:
            return [number(await reader.aget(timeout=60)) for _ in range(500)]

        def produce() -> None:
            for sequence in range(500):
                writer.put(content(sequence))

        producer = threading.Thread(target=produce)
        producer.start()
        assert run_async(consume()) == list(range(500))
        producer.join()
        assert_whole(queue, writer, reader)


async def test_a_timer_runs_between_messages_that_are_always_ready() -> None:
    """In a task that never has to wait, the loop's other work goes on; counted, not timed."""
    with pair(capacity="1 MiB") as (queue, writer, reader):
        ticks = consumed = 0
        enough = 40

        async def tick() -> None:
            nonlocal ticks
            while ticks < enough:
                await asyncio.sleep(0)
                ticks += 1

        async def consume() -> None:
            nonlocal consumed
            while ticks < enough:
                if queue.statistics().depth == 0:
                    writer.put_many([content(consumed + i) for i in range(1000)])
                assert number(await reader.aget()) == consumed
                consumed += 1

        ticking = asyncio.create_task(tick())
        await consume()
        await ticking
        reader.get_many(1000)
        assert reader._counters()["ready"] > 0
        assert_fair_share(consumed, ticks)


def assert_fair_share(consumed: int, ticks: int) -> None:
    """Neither starved: the messages did not wait for the timer, nor the timer for the messages."""
    assert ticks >= 40 and consumed > ticks


@pytest.mark.native
async def test_a_crowd_of_readers_that_are_always_ready_shares_one_turn() -> None:
    """Counted, not timed: were each to take all it has in a turn of its own, the loop would iterate but a few times."""
    members, messages, iterations = 64, 500, 0

    async def consume(reader: QueueReader[bytes]) -> None:
        for _ in range(messages):
            await reader.aget()

    def look() -> None:
        nonlocal iterations
        iterations += 1
        loop.call_soon(look)

    loop = asyncio.get_running_loop()
    with contextlib.ExitStack() as stack:
        crowd = [stack.enter_context(pair(capacity="64 KiB")) for _ in range(members)]
        for _, writer, _ in crowd:
            writer.put_many([bytes(8)] * messages)
        look()
        await asyncio.gather(*(consume(reader) for _, _, reader in crowd))
    assert iterations > 10


async def test_a_timer_runs_between_slots_and_puts_that_are_always_ready() -> None:
    with ends(0) as (_, writer, _):  # without readers there is always room
        fired = asyncio.Event()
        asyncio.get_running_loop().call_later(0.002, fired.set)
        count = 0
        while not fired.is_set():
            async with writer.acquire_write(8) as slot:
                slot.data[:] = content(count, 8)
            await writer.aput(content(count))
            count += 1
        assert count


@pytest.mark.parametrize("debug", [True, False])
def test_debug_mode_is_clean(new_loop: LoopFactory, debug: bool) -> None:
    loop = new_loop()
    loop.set_debug(debug)
    complaints: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: complaints.append(context))

    async def work() -> None:
        with pair() as (queue, writer, reader):
            for sequence in range(20):
                await exchange(writer, reader, sequence)
            for _ in range(20):
                waiting = asyncio.ensure_future(reader.acquire_read(timeout=60))
                await suspended(reader)
                waiting.cancel()
                await asyncio.wait([waiting])
            with pytest.raises(TimeoutError):
                await reader.aget(timeout=0.001)
            with WaitSet([reader, writer]) as waits:
                assert await waits.wait() == [writer]
            assert_whole(queue, writer, reader)

    loop.run_until_complete(work())
    loop.close()
    gc.collect()
    assert complaints == []
