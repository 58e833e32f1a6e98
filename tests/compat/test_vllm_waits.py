"""Waits of MessageQueue that something ends: shutdown, the other side's, a cancel. Nothing is lost, nobody stays."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from compat_rig import FITS, attached, end, fill, held_back, only_writer, reading, sides, slept, writing
from ends import RING, asleep, content, until

import aiospin
from aiospin.compat.vllm import MessageQueue, _queue

pytestmark = pytest.mark.usefixtures("leaves_nothing")

READS: dict[str, Callable[[MessageQueue], Any]] = {
    "dequeue": lambda queue: queue.dequeue(),
    "dequeue_with_timeout": lambda queue: queue.dequeue(timeout=3600, indefinite=True),
    "acquire_read": lambda queue: queue.acquire_read().__enter__(),
    "broadcast_object": lambda queue: queue.broadcast_object(),
}
WRITES: dict[str, Callable[[MessageQueue], Any]] = {
    "enqueue": lambda queue: queue.enqueue(bytes(1000)),
    "enqueue_large": lambda queue: queue.enqueue(bytes(5 * RING)),
    "enqueue_with_timeout": lambda queue: queue.enqueue(bytes(1000), timeout=3600),
    "acquire_write": lambda queue: queue.acquire_write().__enter__(),
    "broadcast_object": lambda queue: queue.broadcast_object(bytes(1000)),
}


def cancelled(call: Callable[[], Any]) -> None:
    """The call raises what a shut-down queue raises, and no subclass of it."""
    with pytest.raises(RuntimeError, match=r"^cancelled$") as caught:
        call()
    assert type(caught.value) is RuntimeError


@pytest.mark.parametrize("call", READS)
def test_shutdown_ends_the_wait_of_another_thread_that_receives(call: str) -> None:
    with ThreadPoolExecutor(1) as pool, sides() as (_, [reader]):
        waiting = pool.submit(READS[call], reader)
        asleep(end(reader))
        reader.shutdown()
        cancelled(waiting.result)
        for later in READS.values():
            cancelled(lambda later=later: later(reader))  # type: ignore[misc]
        reader.shutdown()


@pytest.mark.parametrize("call", WRITES)
def test_shutdown_ends_the_wait_of_another_thread_that_sends(call: str) -> None:
    with ThreadPoolExecutor(1) as pool, sides() as (queue, [reader]):
        count = fill(queue)
        waiting = pool.submit(WRITES[call], queue)
        asleep(end(queue))
        queue.shutdown()
        cancelled(waiting.result)
        for later in WRITES.values():
            cancelled(lambda later=later: later(queue))  # type: ignore[misc]
        queue.shutdown()
        for sequence in range(count):
            assert reader.dequeue() == content(sequence, 1000)
        with pytest.raises(aiospin.QueueClosed):
            reader.dequeue()


def test_the_last_one_to_shut_down_gets_the_same_error() -> None:
    """Nothing of the segment is mapped any more when it is asked."""
    queue = MessageQueue(1, 1, capacity=RING, max_chunk_bytes=1000)
    reader = MessageQueue.create_from_handle(queue.export_handle(), 0)
    queue.enqueue("never received")
    reader.shutdown()
    queue.shutdown()
    for call in (*WRITES.values(), MessageQueue.wait_until_ready):
        cancelled(lambda call=call: call(queue))  # type: ignore[misc]
    for call in (*READS.values(), MessageQueue.wait_until_ready):
        cancelled(lambda call=call: call(reader))  # type: ignore[misc]
    assert queue.shutting_down and reader.shutting_down


async def test_shutdown_ends_coroutines_too() -> None:
    with sides() as (queue, [reader]):
        receiving = asyncio.ensure_future(reader.adequeue())
        while not slept(reader):
            await asyncio.sleep(0)
        threading.Thread(target=reader.shutdown).start()
        with pytest.raises(RuntimeError, match=r"^cancelled$"):
            await receiving
        with pytest.raises(RuntimeError, match=r"^cancelled$"):
            await reader.adequeue()
        queue.shutdown()
        with pytest.raises(RuntimeError, match=r"^cancelled$"):
            await queue.aenqueue(1)


async def test_shutdown_ends_all_coroutines_that_send() -> None:
    with sides() as (queue, [reader]):
        count = fill(queue)
        sending = [asyncio.ensure_future(queue.aenqueue(bytes(1000))) for _ in range(5)]
        while not slept(queue):
            await asyncio.sleep(0)
        queue.shutdown()
        for result in await asyncio.gather(*sending, return_exceptions=True):
            assert type(result) is RuntimeError and str(result) == "cancelled"
        for sequence in range(count):
            assert await reader.adequeue() == content(sequence, 1000)
        with pytest.raises(aiospin.QueueClosed):
            await reader.adequeue()


def test_a_reader_that_waits_hears_of_the_writers_shutdown_after_what_was_sent() -> None:
    with ThreadPoolExecutor(3) as pool, sides((0, 1, 2)) as (queue, readers):

        def drain(reader: MessageQueue) -> list[Any]:
            got = []
            while True:
                try:
                    got.append(reader.dequeue())
                except aiospin.QueueClosed:
                    return got

        draining = [pool.submit(drain, reader) for reader in readers]
        for reader in readers:
            asleep(end(reader))
        queue.enqueue("one")
        queue.enqueue(content(0, 3 * RING))
        queue.shutdown()
        assert [future.result() for future in draining] == [["one", content(0, 3 * RING)]] * 3


def test_a_reader_that_shut_down_is_not_waited_for() -> None:
    with ThreadPoolExecutor(1) as pool, sides((0, 1)) as (queue, [leaving, staying]):
        count = fill(queue)
        held_back(staying, 0, count)
        sending = pool.submit(queue.enqueue, content(count, 1000))
        asleep(end(queue))
        leaving.shutdown()
        sending.result()
        held_back(staying, count, fill(queue, count + 1))


def test_bytes_in_the_body_of_acquire_read_outlive_a_shutdown() -> None:
    with sides((0, 1)) as (queue, [reader, other]):
        queue.enqueue(content(0, 1000))
        other.dequeue()
        with reader.acquire_read() as view:
            threading.Thread(target=reader.shutdown).start()
            until(lambda: end(reader).closed)
            count = fill(queue, 1)
            assert content(0, 1000) in bytes(view)
            held_back(other, 1, count)
            fill(queue, count)
            assert content(0, 1000) in bytes(view), "the place is given up with the bytes, not before"
        cancelled(reader.dequeue)


def test_a_claim_outlives_no_shutdown() -> None:
    with sides(max_chunk_bytes=5000) as (queue, [reader]):
        queue.enqueue("before")
        with pytest.raises(RuntimeError, match=r"^cancelled$"), queue.acquire_write() as view:
            view[:] = bytes(5000)
            queue.shutdown()
        assert reader.dequeue() == "before"
        with pytest.raises(aiospin.QueueClosed):
            reader.dequeue()


def test_a_claim_that_is_abandoned_hides_no_error_after_a_shutdown() -> None:
    with sides(max_chunk_bytes=5000) as (queue, [reader]):
        with pytest.raises(KeyError, match="the body's"), queue.acquire_write():
            queue.shutdown()
            raise KeyError("the body's")
        with pytest.raises(aiospin.QueueClosed):
            reader.dequeue()


# start


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses between two looks of wait_until_ready, one for each."""
    taken: list[float] = []
    pause = threading.Event()

    class Clock:
        monotonic = staticmethod(time.monotonic)

        @staticmethod
        def sleep(seconds: float) -> None:
            taken.append(seconds)
            pause.wait(0.0005)

    monkeypatch.setattr(_queue, "time", Clock)
    return taken


def test_both_sides_wait_until_all_have_come(looks: list[float]) -> None:
    ranks = (5, 9, 2)
    with ThreadPoolExecutor(3) as pool, only_writer(ranks) as queue:
        waiting = [pool.submit(queue.wait_until_ready)]
        readers = []
        for rank in ranks:
            seen = len(looks)
            until(lambda seen=seen: len(looks) > seen + 5)  # type: ignore[misc]
            assert not any(future.done() for future in waiting)
            readers.append(MessageQueue.create_from_handle(queue.export_handle(), rank))
            if len(readers) < len(ranks):
                waiting.append(pool.submit(readers[-1].wait_until_ready))
        for future in waiting:
            future.result()
        for side in (queue, *readers):
            side.wait_until_ready()
        for reader in readers:
            reader.shutdown()
        queue.wait_until_ready()  # they have been there


def test_messages_do_not_disturb_readers_that_wait_for_the_others(looks: list[float]) -> None:
    with ThreadPoolExecutor(1) as pool, only_writer((0, 1)) as queue:
        first = MessageQueue.create_from_handle(queue.export_handle(), 0)
        waiting = pool.submit(first.wait_until_ready)
        until(lambda: looks)
        for sequence in range(3):
            queue.enqueue(sequence)
        seen = len(looks)
        until(lambda: len(looks) > seen + 5)
        second = MessageQueue.create_from_handle(queue.export_handle(), 1)
        waiting.result()
        for reader in (first, second):
            assert [reader.dequeue() for _ in range(3)] == [0, 1, 2]
            reader.shutdown()


def test_shutdown_ends_the_wait_for_others(looks: list[float]) -> None:
    with ThreadPoolExecutor(2) as pool, only_writer((0, 1)) as queue:
        reader = MessageQueue.create_from_handle(queue.export_handle(), 0)
        for side in (reader, queue):
            waiting = pool.submit(side.wait_until_ready)
            seen = len(looks)
            until(lambda seen=seen: len(looks) > seen)  # type: ignore[misc]
            side.shutdown()
            cancelled(waiting.result)


def test_a_reader_that_waits_for_others_hears_that_the_writer_has_shut_down(looks: list[float]) -> None:
    with ThreadPoolExecutor(1) as pool, only_writer((0, 1)) as queue:
        reader = MessageQueue.create_from_handle(queue.export_handle(), 0)
        waiting = pool.submit(reader.wait_until_ready)
        until(lambda: looks)
        queue.shutdown()
        with pytest.raises(aiospin.QueueClosed):
            waiting.result()
        reader.shutdown()


def test_who_has_not_come_is_logged_at_doubling_intervals(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = [1000.0]

    class Clock:
        @staticmethod
        def monotonic() -> float:
            return now[0]

        @staticmethod
        def sleep(seconds: float) -> None:
            now[0] += 10
            if now[0] > 1000 + 250:
                queue.shutdown()

    with only_writer((5, 9, 2)) as queue:
        reader = MessageQueue.create_from_handle(queue.export_handle(), 9)
        monkeypatch.setattr(_queue, "time", Clock)
        cancelled(queue.wait_until_ready)
        reader.shutdown()
    said = [record.getMessage() for record in caplog.records]
    assert [text for text in said if "5, 2" in text] == said
    assert [seconds for seconds in (60, 120, 240) if any(f" {seconds} s" in text for text in said)] == [60, 120, 240]
    assert len(said) == 3


# cancelled


async def turned(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.parametrize("turns", range(5))
async def test_a_cancelled_adequeue_has_taken_nothing(turns: int) -> None:
    with sides() as (queue, [reader]):
        for sequence in range(10):
            receiving = asyncio.ensure_future(reader.adequeue())
            await turned(turns)
            receiving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await receiving
            queue.enqueue(content(sequence, 100))
            assert await reader.adequeue() == content(sequence, 100)


async def test_a_cancel_and_a_message_in_the_same_tick_lose_nothing() -> None:
    with sides() as (queue, [reader]):
        got: list[int] = []
        loop = asyncio.get_running_loop()

        async def take() -> None:
            got.append(await reader.adequeue())

        cancels = 0
        for sequence in range(200):
            before = slept(reader)
            taking = asyncio.ensure_future(take())
            while slept(reader) == before:
                await asyncio.sleep(0)
            if sequence % 2:
                queue.enqueue(sequence)
                loop.call_soon(taking.cancel)
            else:
                loop.call_soon(taking.cancel)
                loop.call_soon(queue.enqueue, sequence)
            await asyncio.gather(taking, return_exceptions=True)
            cancels += taking.cancelled()
            while len(got) <= sequence:
                await take()
        assert got == list(range(200))
        assert cancels >= 100


@pytest.mark.parametrize("turns", range(5))
async def test_a_cancelled_aenqueue_has_sent_nothing(turns: int) -> None:
    with sides() as (queue, [reader]):
        count = fill(queue)
        for size in (1000, 5 * RING):
            sending = asyncio.ensure_future(queue.aenqueue(bytes(size)))
            await turned(turns)
            sending.cancel()
            with pytest.raises(asyncio.CancelledError):
                await sending
        held_back(reader, 0, count)
        await queue.aenqueue("next")
        assert await reader.adequeue() == "next"


async def test_a_large_message_cancelled_on_its_way_leaves_no_half() -> None:
    """One reader is in the middle of it and sleeps; the other has not begun, so that the writer sleeps, too."""
    with sides((0, 1)) as (queue, [fast, slow]):
        for _ in range(3):
            before = slept(queue), slept(fast)
            receiving = asyncio.ensure_future(fast.adequeue())
            sending = asyncio.ensure_future(queue.aenqueue(bytes(5 * RING)))
            while slept(queue) == before[0] or slept(fast) == before[1]:
                await asyncio.sleep(0)
            sending.cancel()
            with pytest.raises(asyncio.CancelledError):
                await sending
            with pytest.raises(TimeoutError):
                await slow.adequeue(timeout=0)  # which also makes room, of the pieces
            await queue.aenqueue("whole")
            assert await receiving == await slow.adequeue() == "whole"


async def test_tasks_that_send_are_served_in_order_past_those_that_were_cancelled() -> None:
    with sides() as (queue, [reader]):
        count = fill(queue)
        sending = [asyncio.ensure_future(queue.aenqueue(content(count + i, 1000))) for i in range(3 * FITS)]
        while len(end(queue)._line._waiting) + (end(queue)._parked_operation is not None) < len(sending):
            await asyncio.sleep(0)
        for victim in sending[::7]:
            victim.cancel()
        alive = [i for i, task in enumerate(sending) if i % 7]
        for sequence in (*range(count), *(count + i for i in alive)):
            assert await reader.adequeue() == content(sequence, 1000)
        results = await asyncio.gather(*sending, return_exceptions=True)
        assert [i for i, result in enumerate(results) if result is None] == alive
        with pytest.raises(TimeoutError):
            reader.dequeue(timeout=0)


async def test_two_tasks_cannot_receive_at_once() -> None:
    with sides() as (queue, [reader]):
        receiving = asyncio.ensure_future(reader.adequeue())
        while not slept(reader):
            await asyncio.sleep(0)
        with pytest.raises(aiospin.ReaderBusy):
            await reader.adequeue()
        queue.enqueue("for the first")
        assert await receiving == "for the first"


def test_threads_share_a_writer() -> None:
    threads, each = 4, 100
    with ThreadPoolExecutor(threads) as pool, sides() as (queue, [reader]):
        start = threading.Barrier(threads)

        def send(thread: int) -> None:
            start.wait()
            for number in range(each):
                queue.enqueue((thread, number, content(number, 3 * RING if number % 40 == 13 else 700)))

        sending = [pool.submit(send, thread) for thread in range(threads)]
        seen = [0] * threads
        for _ in range(threads * each):
            thread, number, body = reader.dequeue()
            assert (number, body) == (seen[thread], content(number, len(body)))
            seen[thread] += 1
        for future in sending:
            future.result()


# dropped


def test_a_writer_that_nobody_has_any_more_has_shut_down() -> None:
    queue = MessageQueue(1, 1, capacity=RING, max_chunk_bytes=1000)
    reader = MessageQueue.create_from_handle(queue.export_handle(), 0)
    queue.enqueue("last")
    del queue
    gc.collect()
    assert reader.dequeue() == "last"
    with pytest.raises(aiospin.QueueClosed):
        reader.dequeue()
    del reader
    gc.collect()


def test_a_reader_that_nobody_has_any_more_is_not_waited_for() -> None:
    with only_writer((0, 1)) as queue:
        first, second = (MessageQueue.create_from_handle(queue.export_handle(), rank) for rank in (0, 1))
        count = fill(queue)
        held_back(first, 0, count)
        del second
        gc.collect()
        assert fill(queue) == count
        first.shutdown()


def test_a_process_that_ends_in_good_order_has_shut_down() -> None:
    with writing((0,), messages=2) as writer:
        reader = attached(writer, 0)
        writer.say()
        writer.finish()
        assert [reader.dequeue(), reader.dequeue()] == [content(0, 500), content(1, 500)]
        for _ in range(2):
            with pytest.raises(aiospin.QueueClosed):
                reader.dequeue()
        reader.shutdown()
    with only_writer((0,)) as queue:
        with reading(queue, 0) as program:
            assert program.hear() == "ready"
            program.say()
            program.finish()
        for sequence in range(3 * FITS):
            queue.enqueue(content(sequence, 1000), timeout=0)
