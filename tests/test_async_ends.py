"""How streams end under those who wait: close, drain, shutdown, detach, collection, and death of the peer."""

from __future__ import annotations

import asyncio
import gc
import signal
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from async_rig import (
    FITS,
    WHOLE,
    assert_whole,
    content,
    fill,
    kill,
    let_in,
    number,
    numbers,
    pair,
    peer,
    put_and_close,
    put_and_hold,
    suspended,
    take_one_and_hold,
    turns,
)

from aiospin import (
    Full,
    PeerDied,
    Queue,
    QueueClosed,
    QueueReader,
    QueueWriter,
    ReaderBusy,
    ReaderDropped,
    WaitSet,
)


async def test_a_closed_stream_is_drained_and_then_ends() -> None:
    with Queue(capacity="64 KiB") as queue, queue.reader() as reader:
        with peer(put_and_close, queue.writer(), 0, 500):
            assert numbers([payload async for payload in reader]) == list(range(500))
        for call in (reader.aget, reader.acquire_read, lambda: reader.aget_many(3), lambda: reader.aget(timeout=0)):
            with pytest.raises(QueueClosed, match="reader 0"):
                await call()
        assert [slot async for slot in reader.slots()] == []


async def test_closing_the_writer_wakes_a_waiting_reader() -> None:
    with pair() as (_, writer, reader):
        waiting = asyncio.ensure_future(reader.aget())
        await suspended(reader)
        writer.close()
        with pytest.raises(QueueClosed):
            await waiting


async def test_shutdown_lets_readers_drain() -> None:
    with pair() as (queue, writer, reader):
        writer.put_many([content(0), content(1)])
        queue.shutdown()
        with pytest.raises(QueueClosed, match="shut down"):
            await writer.aput(b"")
        with pytest.raises(QueueClosed):
            await writer.acquire_write(1)
        assert numbers([payload async for payload in reader]) == [0, 1]


async def test_an_immediate_shutdown_ends_readers_at_once() -> None:
    with pair() as (queue, writer, reader):
        writer.put_many([content(0), content(1)])
        slot = await reader.acquire_read()
        queue.shutdown(immediate=True)
        with pytest.raises(QueueClosed):
            await reader.aget()
        assert number(slot.data) == 0
        slot.release()
        with pytest.raises(QueueClosed):
            writer.put_nowait(b"")


@pytest.mark.parametrize("immediate", [False, True])
async def test_shutdown_wakes_whoever_waits(immediate: bool) -> None:
    with pair() as (queue, writer, reader):
        reading = asyncio.ensure_future(reader.acquire_read())
        await suspended(reader)
        queue.shutdown(immediate=immediate)
        with pytest.raises(QueueClosed):
            await reading
    with pair() as (queue, writer, reader):
        fill(writer)
        writing = [asyncio.ensure_future(writer.aput(content(0, WHOLE))) for _ in range(5)]
        writing.append(asyncio.ensure_future(writer.acquire_write(WHOLE)))
        await suspended(writer, 6)
        queue.shutdown(immediate=immediate)
        results = await asyncio.gather(*writing, return_exceptions=True)
        assert [type(result) for result in results] == [QueueClosed] * 6


@pytest.mark.parametrize("way", ["close", "detach", "aclose"])
async def test_closing_an_end_under_its_waiter_ends_the_wait(way: str) -> None:
    with pair() as (queue, writer, reader):
        fill(writer)
        writing = [asyncio.ensure_future(writer.aput(content(0, WHOLE))) for _ in range(3)]
        await suspended(writer, 3)
        closing = getattr(writer, way)()
        if closing is not None:
            await closing
        for task in writing:
            with pytest.raises(QueueClosed):
                await task
        assert len(reader.get_many(1000)) == FITS
        if way == "detach":  # the stream goes on
            waiting = asyncio.ensure_future(reader.aget())
            await suspended(reader)
            closing = getattr(reader, way)()
            with pytest.raises(QueueClosed):
                await waiting
        assert writer.closed
        with queue.writer() as successor:
            successor.put_nowait(b"")


@pytest.mark.parametrize("way", ["close", "detach"])
async def test_closing_a_reader_under_its_waiter_ends_the_wait(way: str) -> None:
    with pair() as (_, _, reader):
        waiting = asyncio.ensure_future(reader.aget())
        await suspended(reader)
        getattr(reader, way)()
        with pytest.raises(QueueClosed):
            await waiting
        with pytest.raises(QueueClosed):
            await reader.aget()


async def test_closing_the_queue_under_a_waiter_ends_the_wait() -> None:
    queue: Queue[Any] = Queue(capacity="64 KiB")
    with queue.writer() as writer, queue.reader() as reader:
        waiting = asyncio.ensure_future(reader.aget())
        await suspended(reader)
        queue.close()
        with pytest.raises(QueueClosed):
            await waiting
        with pytest.raises(QueueClosed):
            await writer.aput(b"")


async def test_a_detached_reader_is_succeeded_without_a_loss() -> None:
    with pair() as (queue, writer, reader):
        writer.put_many([content(sequence) for sequence in range(6)])
        assert numbers([await reader.aget(), await reader.aget()]) == [0, 1]
        slot: Any = await reader.acquire_read()
        reader.detach()
        slot.release()
        with queue.reader() as successor:
            seen = []
            for _ in range(3):
                async with successor.acquire_read() as slot:
                    seen.append((number(slot.data), slot.redelivered))
            assert seen == [(3, False), (4, False), (5, False)]


async def test_a_dropped_reader_hears_of_it_while_it_waits() -> None:
    with pair() as (_, writer, reader):
        waiting = asyncio.ensure_future(reader.aget())
        await suspended(reader)
        writer.drop_reader(0, force=True)
        writer.put(content(0))
        with pytest.raises(ReaderDropped):
            await waiting


async def test_dropping_a_reader_makes_room_for_a_waiting_writer() -> None:
    with pair() as (_, writer, _):
        fill(writer)
        waiting = asyncio.ensure_future(writer.aput(content(0, WHOLE)))
        await suspended(writer)
        writer.drop_reader(0, force=True)
        await waiting


async def test_a_reader_that_leaves_makes_room_for_a_waiting_writer() -> None:
    with pair() as (_, writer, reader):
        fill(writer)
        waiting = asyncio.ensure_future(writer.aput(content(0, WHOLE)))
        await suspended(writer)
        reader.close()
        await waiting


async def test_two_tasks_on_one_reader_are_refused() -> None:
    with pair() as (queue, writer, reader):
        first = asyncio.ensure_future(reader.aget())
        await suspended(reader)
        for call in (reader.aget, reader.acquire_read, lambda: reader.aget_many(1)):
            with pytest.raises(ReaderBusy, match="reader 0"):
                await call()
        for call in (reader.get, reader.get_nowait, reader.try_acquire_read):
            with pytest.raises(ReaderBusy, match="reader 0"):
                call()
        with pytest.raises(ReaderBusy):
            with reader.acquire_read():
                raise AssertionError
        writer.put(content(0))
        assert number(await first) == 0
        assert_whole(queue, writer, reader)


async def test_a_killed_writer_is_told_once_and_succeeded() -> None:
    with Queue(capacity="64 KiB") as queue, queue.reader() as reader:
        for generation in range(2):
            with peer(put_and_hold, queue.writer(), 10 * generation, 3) as child:
                received = [number(await reader.aget()) for _ in range(3)]
                waiting = asyncio.ensure_future(reader.aget())
                await suspended(reader)
                pid = child.pid
                kill(child)
                with pytest.raises(PeerDied, match=f"the writer.*{pid}") as died:
                    await waiting
                assert (died.value.rank, died.value.pid) == (None, pid)
            assert received == [10 * generation + i for i in range(3)]
            with pytest.raises(TimeoutError):
                await reader.aget(timeout=0.01)  # once per death
        waiting = asyncio.ensure_future(reader.aget())
        await suspended(reader)
        with queue.writer() as successor:
            assert successor._sequence == 6
            await successor.aput(content(42))
            assert number(await waiting) == 42


async def test_what_a_killed_writer_published_comes_first() -> None:
    with Queue(capacity="64 KiB") as queue, queue.reader() as reader:
        with peer(put_and_hold, queue.writer(), 0, 50) as child:
            while not queue.statistics().depth:
                await asyncio.sleep(0.001)
            received = [number(await reader.aget())]
            kill(child)
        with pytest.raises(PeerDied):
            async for payload in reader:
                received.append(number(payload))
        assert received == list(range(len(received))) and len(received) in (1, 32, 50)


async def test_a_killed_reader_is_told_once_to_a_waiting_writer() -> None:
    with Queue(capacity="64 KiB") as queue, queue.writer() as writer:
        with peer(take_one_and_hold, queue.reader()) as child:
            let_in(queue, writer)
            count = fill(writer)
            first, second = (asyncio.ensure_future(writer.aput(content(count + i, WHOLE))) for i in range(2))
            await suspended(writer, 2)
            pid = child.pid
            kill(child)
            with pytest.raises(PeerDied, match=f"reader 0.*{pid}") as died:
                await first
            assert died.value.rank == 0
        await turns(20)
        assert not second.done()
        with pytest.raises(Full):
            writer.put_nowait(b"x" * WHOLE)
        with queue.reader() as successor:
            received = [number(await successor.aget()) for _ in range(count)]
            assert received == list(range(count))
            await second
            assert number(await successor.aget()) == count + 1


async def test_waiting_through_a_death_is_possible() -> None:
    with Queue(capacity="64 KiB", on_peer_death="wait") as queue, queue.reader() as reader:
        with peer(put_and_hold, queue.writer(), 0, 1) as child:
            assert number(await reader.aget()) == 0
            waiting = asyncio.ensure_future(reader.aget())
            await suspended(reader)
            kill(child)
        await asyncio.sleep(0)
        with queue.writer() as successor:
            await successor.aput(content(1))
            assert number(await waiting) == 1


async def test_collecting_ends_and_queue_warns_and_leaves_nothing(leaves_nothing: Any) -> None:
    def make() -> weakref.ref[Any]:
        queue: Queue[Any] = Queue(capacity="64 KiB")
        writer, reader = queue.writer(), queue.reader()
        writer.put(content(0))
        assert number(reader.get()) == 0
        return weakref.ref(reader)

    with pytest.warns(ResourceWarning, match="never closed"):
        reader = make()
        gc.collect()
    assert reader() is None


def test_collecting_a_reader_after_a_cancelled_wait_leaves_nothing(
    leaves_nothing: Any, run_async: Callable[[Any], Any]
) -> None:
    async def wait(reader: Any) -> None:
        await reader.aget()

    async def make() -> None:
        queue: Queue[Any] = Queue(capacity="64 KiB")
        reader = queue.reader()
        task = asyncio.ensure_future(wait(reader))
        await suspended(reader)
        task.cancel()
        await asyncio.wait([task])

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run_async(make())
        gc.collect()
    assert {warning.category for warning in caught} == {ResourceWarning}


async def test_a_successor_that_came_with_a_message_is_watched_from_the_next_wait_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its message ends the wait that its arrival woke, so no wait has been in vain when it dies."""
    with Queue(capacity="64 KiB", policy="eco") as queue, queue.reader() as reader:
        monkeypatch.setattr(reader, "_look_after", lambda: None)  # which would mend it within a second
        for turn in range(2):
            waiting = asyncio.ensure_future(reader.aget())
            await suspended(reader)
            with peer(put_and_hold, queue.writer(), turn, 1) as writer:
                while not reader._ready():  # both have rung before the loop hears either
                    pass
                assert await waiting == content(turn)
                bereaved = asyncio.ensure_future(reader.aget())
                await suspended(reader)
                kill(writer)
                with pytest.raises(PeerDied) as told:
                    await asyncio.wait_for(bereaved, 30)
                assert (told.value.pid, told.value.noticed) == (writer.pid, "pidfd")


def claim_and_hold(writer: QueueWriter[Any]) -> None:
    """Become the writer, and stay."""
    with writer:
        signal.pause()


@pytest.mark.parametrize("way", ["sync", "await", "wait set"])
def test_a_peer_that_died_before_anybody_looked_is_told_at_once(
    way: str, run_async: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no pidfd of it, and nothing that would ring any more."""
    with Queue(capacity="64 KiB") as queue, queue.reader() as reader:
        monkeypatch.setattr(reader, "_look_after", lambda: None)
        monkeypatch.setattr(reader, "_recheck", lambda waited: None)
        with peer(claim_and_hold, queue.writer()) as writer:
            while not reader._has_new_peers():
                pass
            kill(writer)
        with pytest.raises(PeerDied):
            if way == "sync":
                reader.get(timeout=30)
            elif way == "await":
                run_async(asyncio.wait_for(_get(reader), 30))
            else:
                with WaitSet([reader]) as waits:
                    monkeypatch.setattr(waits, "_look_after", lambda: None)
                    assert waits.wait_sync(timeout=30) == [reader]
                reader.get_nowait()


async def _get(reader: QueueReader[Any]) -> Any:
    return await reader.aget()
