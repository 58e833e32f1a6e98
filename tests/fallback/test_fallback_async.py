"""Awaiting: the coroutine protocol, cancels, time-outs, fairness, order, and who may wait. Runs on both loops."""

from __future__ import annotations

import asyncio
import collections.abc
import gc
import math
import time
from typing import Any

import pytest
from fallback_rig import PAGE, RigReader, RigWriter, content, rig

from aiospin import _layout
from aiospin._errors import Full, QueueClosed, ReaderBusy, WriterBusy
from aiospin._fallback import Acquire, Operation, timing

LARGE = 5 * PAGE + 123


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def suspended(endpoint: RigReader | RigWriter, count: int = 1) -> None:
    """Let the loop turn until that many operations are suspended."""
    while len(endpoint.suspended) < count:
        await asyncio.sleep(0)


def fill(writer: RigWriter) -> int:
    """Put until there is no room; returns how many."""
    count = 0
    while True:
        try:
            writer.put_nowait(content(count, 1000))
        except Full:
            return count
        count += 1


async def test_both_are_coroutines_in_every_way_asyncio_asks() -> None:
    with rig() as queue:
        writer, reader = queue.writer(), queue.reader()
        operation, acquire = reader.aget(), reader.acquire_read()
        assert isinstance(operation, Operation) and isinstance(acquire, Acquire)
        for each in (operation, acquire):
            assert isinstance(each, collections.abc.Coroutine) and asyncio.iscoroutine(each)
        task = asyncio.create_task(operation)  # type: ignore[arg-type]
        await suspended(reader)
        assert "Operation" in repr(task)
        await writer.aput(b"one")
        assert await task == b"one"
        await writer.aput(b"two")
        slot = await asyncio.wait_for(acquire, 60)
        assert slot.data == b"two"
        slot.release()
        writer.put_many([b"three", b"four"])
        assert (await asyncio.gather(reader.aget()))[0] == b"three"
        assert await reader.aget_many(9) == [b"four"]


async def test_async_with_releases_and_publishes_on_exit() -> None:
    with rig() as queue:
        writer, reader = queue.writer(), queue.reader()
        async with writer.acquire_write(4) as slot:
            slot.data[:] = b"four"
        async with reader.acquire_read(timeout=60) as read:
            assert read.data == b"four"
        assert read.released and queue.released() == queue.published()
        with pytest.raises(KeyError):
            async with writer.acquire_write(4):
                raise KeyError
        writer.put(b"x")
        kept = []
        with pytest.raises(KeyError):
            async with reader.acquire_read() as read:
                kept.append(read.data)
                raise KeyError
        assert reader.try_acquire_read() is None and kept[0] == b"x"


async def test_an_operation_runs_once() -> None:
    with rig() as queue:
        writer, reader = queue.writer(), queue.reader()
        writer.put_many([b"a", b"b"])
        operation, acquire = reader.aget(), reader.acquire_read()
        assert await operation == b"a"
        with pytest.raises(RuntimeError, match="used already"):
            await operation
        with acquire as slot:
            assert slot.data == b"b"
        with pytest.raises(RuntimeError, match="used already"):
            acquire.__enter__()


def test_a_forgotten_operation_warns() -> None:
    with rig() as queue:
        writer, reader = queue.writer(), queue.reader()
        for make in (reader.aget, reader.acquire_read, lambda: writer.aput(b"x"), lambda: writer.acquire_write(1)):
            with pytest.warns(RuntimeWarning, match="never awaited"):
                make()
        closed = reader.aget()
        closed.close()
        with pytest.raises(RuntimeError):
            closed.send(None)
        assert queue.published() == 0 and not reader._opened


def test_the_protocol_by_hand() -> None:
    """What a driver sees: the future's own yield, then the result; throw and close end the wait and leave once."""

    async def drive() -> None:
        with rig() as queue:
            writer, reader = queue.writer(), queue.reader()
            operation = reader.aget()
            future = operation.send(None)
            assert asyncio.isfuture(future) and reader.suspended == [(operation, future)]
            writer.put(b"x")
            while not future.done():
                await asyncio.sleep(0)
            with pytest.raises(StopIteration) as stop:
                operation.send(None)
            assert stop.value.value == b"x" and reader.left == [operation]
            thrown, closed = reader.aget(), reader.aget()
            thrown.send(None)
            with pytest.raises(KeyError):
                thrown.throw(KeyError("mine"))
            closed.send(None)
            closed.close()
            assert reader.left == [operation, thrown, closed]
            assert reader._waiter == {}

    asyncio.run(drive())


async def test_timeouts() -> None:
    with rig() as queue:
        writer, reader = queue.writer(), queue.reader()
        with pytest.raises(TimeoutError, match=r"reader 0: no message within 0 s"):
            await reader.aget(timeout=0)
        assert reader.suspensions == 0
        begun = time.monotonic()
        with pytest.raises(TimeoutError, match=r"0\.02 s"):
            await reader.aget(timeout=0.02)
        assert time.monotonic() - begun >= 0.02
        assert len(reader.left) == 1
        count = fill(writer)
        with pytest.raises(TimeoutError, match=r"writer: no room within 0\.01 s"):
            await writer.aput(bytes(1000), timeout=0.01)
        with pytest.raises(TimeoutError):
            async with writer.acquire_write(1000, timeout=0):
                pass
        assert reader.get_many(99) == [content(i, 1000) for i in range(count)]
        writer.put(b"x")
        assert await reader.aget(timeout=math.inf) == b"x"
        writer.put(b"y")
        assert await reader.aget(timeout=0) == b"y"


async def test_a_cancelled_wait_takes_nothing() -> None:
    with rig() as queue:
        writer, reader = queue.writer(), queue.reader()
        for sequence in range(50):
            task = asyncio.ensure_future(reader.aget())
            await suspended(reader)
            writer.put(content(sequence, 20))
            reader.bell_rang()  # the wake has been delivered; the task has not run
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await reader.aget() == content(sequence, 20)


async def test_a_slot_that_a_cancel_orphans_is_handed_out_again() -> None:
    with rig() as queue:
        writer, reader = queue.writer(), queue.reader()
        for sequence in range(20):
            task = asyncio.ensure_future(reader.acquire_read())
            shield = asyncio.shield(task)
            await suspended(reader)
            shield.cancel()
            writer.put(content(sequence, 20))
            await asyncio.wait([task])
            del task, shield
            gc.collect()
            async with reader.acquire_read() as slot:
                assert slot.sequence == sequence and slot.data == content(sequence, 20)


async def test_two_tasks_on_one_reader() -> None:
    with rig() as queue:
        writer, reader = queue.writer(), queue.reader()
        first = asyncio.ensure_future(reader.aget())
        await suspended(reader)
        with pytest.raises(ReaderBusy, match="reader 0"):
            await reader.aget()
        for call in (reader.get, reader.get_nowait, reader.try_acquire_read):
            with pytest.raises(ReaderBusy):
                call()
        writer.put(b"mine")
        assert await first == b"mine"
        assert reader.left and reader.try_acquire_read() is None


async def test_writers_tasks_go_first_in_first_out() -> None:
    with rig() as queue:
        writer, reader = queue.writer(), queue.reader()
        count = fill(writer)
        tasks = []
        for index in range(6):
            tasks.append(asyncio.ensure_future(writer.aput(content(count + index, 900))))
            await suspended(writer, index + 1)
        with pytest.raises(WriterBusy):
            writer.put(b"x")
        with pytest.raises(Full):
            writer.put_nowait(b"")
        with pytest.raises(WriterBusy):
            writer.try_acquire_write(0)
        tasks[2].cancel()
        tasks[5].cancel()
        await turns()
        got = [await reader.aget() for _ in range(count + 4)]
        assert got[:count] == [content(i, 1000) for i in range(count)]
        assert got[count:] == [content(count + i, 900) for i in (0, 1, 3, 4)]
        await asyncio.gather(*tasks, return_exceptions=True)
        assert len(writer.left) == 6 and writer._queued == 0


async def test_an_operation_waits_for_an_outstanding_claim() -> None:
    with rig() as queue:
        writer, reader = queue.writer(), queue.reader()
        for end in ("publish", "abort"):
            claim = await writer.acquire_write(5)
            claim.data[:] = b"claim"
            task = asyncio.ensure_future(writer.aput(b"after"))
            await suspended(writer)
            await turns()
            assert not task.done()
            kicks = writer.kicks
            getattr(claim, end)()
            assert writer.kicks == kicks + 1
            await task
            assert reader.get_many(9) == ([b"claim"] if end == "publish" else []) + [b"after"]


async def test_claims_queue_up_too() -> None:
    with rig() as queue:
        writer, reader = queue.writer(), queue.reader()

        async def put(index: int) -> None:
            async with writer.acquire_write(1) as slot:
                await asyncio.sleep(0)
                slot.data[0] = index

        await asyncio.gather(*map(put, range(10)))
        assert reader.get_many(99) == [bytes([i]) for i in range(10)]


async def test_large_messages_pass_between_tasks() -> None:
    with rig() as queue:
        writer, reader = queue.writer(), queue.reader()

        async def put() -> None:
            await writer.aput(content(0, LARGE))
            async with writer.acquire_write(LARGE) as slot:
                slot.data[:] = content(1, LARGE)
            await writer.aput_many([content(2, LARGE), content(3, 3), content(4, LARGE)])

        task = asyncio.ensure_future(put())
        await suspended(writer)
        small = asyncio.ensure_future(writer.aput(b"behind"))
        got = [await reader.aget() for _ in range(6)]
        await task
        await small
        got.remove(b"behind")
        assert got == [content(0, LARGE), content(1, LARGE), content(2, LARGE), content(3, 3), content(4, LARGE)]


async def test_a_cancelled_large_message_is_never_seen() -> None:
    with rig() as queue:
        writer, reader = queue.writer(), queue.reader()
        task = asyncio.ensure_future(writer.aput(content(0, LARGE)))
        await suspended(writer)
        assert reader.try_acquire_read() is None
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await writer.aput(b"next")
        slot = await reader.acquire_read()
        assert slot.sequence == 0 and slot.data == b"next"
        slot.release()


async def test_what_is_ready_at_once_still_lets_the_loop_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock is ours: 30 us an await, so a turn falls due every fourth one."""
    with rig(capacity=4 * PAGE) as queue:
        writer, reader = queue.writer(), queue.reader()
        writer.put_many([b"x"] * 40)
        now = time.monotonic_ns()

        def clock() -> int:
            return now

        monkeypatch.setattr(timing.time, "monotonic_ns", clock)
        await reader.aget()
        ran = 0
        stop = False

        async def other() -> None:
            nonlocal ran
            while not stop:
                ran += 1
                await asyncio.sleep(0)

        task = asyncio.ensure_future(other())
        for _ in range(39):
            now += 30_000
            await reader.aget()
        assert 8 <= ran <= 11 and reader.suspensions == 0
        assert reader._counters()["ready"] == 40
        stop = True
        await task


async def test_letting_the_loop_turn_keeps_the_order_of_puts(monkeypatch: pytest.MonkeyPatch) -> None:
    with rig() as queue:
        writer, reader = queue.writer(), queue.reader()
        monkeypatch.setattr("aiospin._fallback.operation.loop_is_due", lambda: True)

        async def put(index: int) -> None:
            await writer.aput(bytes([index]))
            monkeypatch.setattr("aiospin._fallback.operation.loop_is_due", lambda: False)
            await writer.aput(bytes([index + 10]))

        await asyncio.gather(*map(put, range(3)))
        assert b"".join(reader.get_many(9)) == bytes([0, 1, 2, 10, 11, 12])


async def test_a_cancel_during_that_turn_takes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with rig() as queue:
        writer, reader = queue.writer(), queue.reader()
        monkeypatch.setattr("aiospin._fallback.operation.loop_is_due", lambda: True)
        writer.put(b"x")
        reader.fileno()
        task = asyncio.ensure_future(reader.aget())
        await asyncio.sleep(0)
        with pytest.raises(ReaderBusy):
            reader.get_nowait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert reader._passing == 0 and reader.left == []
        assert await reader.aget() == b"x"


async def test_the_end_reaches_who_waits() -> None:
    with rig() as queue:
        writer, reader = queue.writer(), queue.reader()
        fill(writer)
        put = asyncio.ensure_future(writer.aput(bytes(1000)))
        await suspended(writer)
        queue.set_control(_layout.CONTROL_SHUTDOWN, 2)
        writer.wake_head()
        with pytest.raises(QueueClosed):
            await put
        with pytest.raises(QueueClosed):
            await reader.aget()


async def test_blocking_forms_that_need_not_wait_do_not_block() -> None:
    with rig() as queue:
        writer, reader = queue.writer(), queue.reader()
        with writer.acquire_write(1) as slot:
            slot.data[0] = 7
        with reader.acquire_read() as read:
            assert read.data == b"\x07"
        with pytest.raises(TimeoutError):
            reader.get(timeout=0)
        assert writer.blocked == reader.blocked == 0
        with pytest.raises(TimeoutError):
            reader.get(timeout=0.001)
        assert reader.blocked == 1


async def test_a_first_use_claims_and_a_failing_claim_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with rig() as queue:
        reader = queue.reader()

        def refuse() -> Any:
            raise ValueError("taken")

        monkeypatch.setattr(reader, "_claim", refuse)
        for _ in range(2):
            with pytest.raises(ValueError, match="taken"):
                await reader.aget()
        monkeypatch.undo()
        queue.writer().put(b"x")
        assert await reader.aget() == b"x"
