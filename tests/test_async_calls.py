"""Every way to await a reader or a writer, with what is there at once and with what comes later."""

from __future__ import annotations

import asyncio
import collections.abc
import gc
import sys

import pytest
from async_rig import assert_whole, content, number, numbers, pair, suspended

from aiospin import Queue

NEEDS_3_11 = pytest.mark.skipif(sys.version_info < (3, 11), reason="needs Python 3.11")


async def test_an_awaited_slot_is_held_until_it_is_released() -> None:
    with pair() as (queue, writer, reader):
        await writer.aput(content(0))
        slot = await reader.acquire_read()
        assert (slot.sequence, number(slot.data), len(slot), slot.released) == (0, 0, 8, False)
        assert queue.statistics().leases == 1
        slot.release()
        slot.release()
        assert slot.released
        assert_whole(queue, writer, reader)


async def test_async_with_releases_the_slot() -> None:
    with pair() as (queue, writer, reader):
        writer.put(content(0))
        async with reader.acquire_read(timeout=60) as slot:
            assert number(slot.data) == 0
        assert slot.released
        assert_whole(queue, writer, reader)


async def test_async_with_publishes_what_was_written() -> None:
    with pair() as (queue, writer, reader):
        async with writer.acquire_write(100) as slot:
            slot.data[:16] = content(7, 16)
            slot.truncate(16)
            assert len(slot) == slot.size == 16
        assert await reader.aget() == content(7, 16)
        claim = await writer.acquire_write(16)
        claim.data[:] = content(8, 16)
        claim.publish()
        assert number(await reader.aget()) == 8
        claim = await writer.acquire_write(16)
        claim.abort()
        assert reader.try_acquire_read() is None
        assert_whole(queue, writer, reader)


async def test_async_for_gives_owned_bytes_until_the_stream_ends() -> None:
    with pair() as (_, writer, reader):

        async def send() -> None:
            for sequence in range(300):
                await writer.aput(content(sequence))
            writer.close()

        sending = asyncio.create_task(send())
        received = [payload async for payload in reader]
        assert {type(payload) for payload in received} == {bytes}
        assert numbers(received) == list(range(300))
        await sending


async def test_slots_are_leased_until_the_next_step() -> None:
    with pair() as (queue, writer, reader):
        writer.put_many([content(sequence) for sequence in range(100)])
        writer.close()
        received, before = [], None
        async for slot in reader.slots():
            assert before is None or before.released
            assert queue.statistics().leases == 1
            received.append(number(slot.data))
            before = slot
        assert received == list(range(100))
        assert before is not None and before.released


async def test_leaving_slots_early_keeps_the_rest() -> None:
    with pair() as (queue, writer, reader):
        writer.put_many([content(sequence) for sequence in range(3)])
        stream = reader.slots()
        async for slot in stream:
            assert slot.sequence == 0
            break
        await stream.aclose()
        assert slot.released
        assert numbers(await reader.aget_many(8)) == [1, 2]
        assert_whole(queue, writer, reader)


@pytest.mark.parametrize("call", ["aget", "acquire_read", "aget_many", "async with", "async for"])
async def test_each_call_waits_for_what_comes_later(call: str) -> None:
    with pair() as (queue, writer, reader):

        async def take() -> list[int]:
            if call == "aget":
                return [number(await reader.aget())]
            if call == "aget_many":
                return numbers(await reader.aget_many(5))
            if call == "async for":
                async for payload in reader:
                    return [number(payload)]
            if call == "async with":
                async with reader.acquire_read() as slot:
                    return [number(slot.data)]
            with await reader.acquire_read() as slot:
                return [number(slot.data)]

        for sequence in range(20):
            taking = asyncio.create_task(take())
            await suspended(reader)
            writer.put(content(sequence))
            assert await taking == [sequence]
        assert_whole(queue, writer, reader)


async def test_tasks_and_gather_take_the_calls_themselves() -> None:
    with pair() as (queue, writer, reader):
        for operation in (reader.aget(), reader.acquire_read(), writer.aput(b"1"), writer.acquire_write(1)):
            assert isinstance(operation, collections.abc.Coroutine) and asyncio.iscoroutine(operation)
            operation.close()
        task = asyncio.create_task(reader.aget())  # type: ignore[arg-type]
        await suspended(reader)
        assert repr(task)
        writer.put(content(0))
        assert number(await task) == 0
        slot, nothing = await asyncio.gather(reader.acquire_read(), writer.aput(content(1)))
        assert nothing is None
        with slot:
            assert number(slot.data) == 1
        shielded = asyncio.shield(reader.aget())
        writer.put(content(2))
        assert number(await shielded) == 2
        assert_whole(queue, writer, reader)


async def test_wait_for_takes_the_calls_themselves() -> None:
    with pair() as (queue, writer, reader):
        writer.put(content(0))
        assert number(await asyncio.wait_for(reader.aget(), 60)) == 0
        waiting = asyncio.create_task(asyncio.wait_for(reader.acquire_read(), 60))
        await suspended(reader)
        writer.put(content(1))
        with await waiting as slot:
            assert number(slot.data) == 1
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(reader.aget(), 0.001)
        assert_whole(queue, writer, reader)


@NEEDS_3_11
async def test_a_task_group_takes_the_calls_themselves() -> None:
    with pair() as (queue, writer, reader):
        async with asyncio.TaskGroup() as group:
            reading = group.create_task(reader.aget())
            group.create_task(writer.aput(content(0)))
        assert number(reading.result()) == 0
        async with asyncio.timeout(60):
            await writer.aput(content(1))
            assert number(await reader.aget()) == 1
        assert_whole(queue, writer, reader)


async def test_an_operation_is_used_once() -> None:
    with pair() as (_, writer, reader):
        writer.put(content(0))
        operation = reader.aget()
        await operation
        with pytest.raises(RuntimeError):
            await operation
        acquire = reader.acquire_read()
        acquire.close()
        with pytest.raises(RuntimeError):
            with acquire:
                raise AssertionError("entered")


async def test_what_is_never_awaited_warns_and_does_nothing() -> None:
    with pair() as (_, writer, reader):
        writer.put(content(0))
        for make in (reader.aget, reader.acquire_read, lambda: writer.aput(b"x"), lambda: writer.acquire_write(1)):
            with pytest.warns(RuntimeWarning, match="never awaited"):
                make()
                gc.collect()
        assert number(await reader.aget()) == 0
        assert reader.try_acquire_read() is None


async def test_many_at_once_keep_their_order() -> None:
    with pair() as (queue, writer, reader):
        sending = asyncio.create_task(writer.aput_many(content(sequence) for sequence in range(5000)))
        received: list[int] = []
        while len(received) < 5000:
            batch = numbers(await reader.aget_many(64))
            assert 1 <= len(batch) <= 64
            received += batch
        await sending
        assert received == list(range(5000))
        writer.put_many([content(sequence) for sequence in range(10)])
        assert numbers(reader.get_many(4)) == [0, 1, 2, 3]
        assert numbers(reader.get_many(64)) == [4, 5, 6, 7, 8, 9]
        await writer.aput_many([])
        assert_whole(queue, writer, reader)


@pytest.mark.parametrize("n", [0, -1])
async def test_a_number_of_messages_below_one_is_refused(n: int) -> None:
    with pair() as (_, _, reader), pytest.raises(ValueError, match=str(n)):
        await reader.aget_many(n)


async def test_several_buffers_are_one_message() -> None:
    with pair() as (_, writer, reader):
        await writer.aput(b"head", bytearray(b" and "), memoryview(b"body"))
        await writer.aput(b"")
        await writer.aput()
        assert [await reader.aget() for _ in range(3)] == [b"head and body", b"", b""]


@pytest.mark.parametrize("codec", ["msgpack", "pickle"])
async def test_a_codec_carries_objects(codec: str) -> None:
    messages = [{"name": "one", "values": [1, 2.5, None]}, "text", 3, [], b"raw"]
    with pair(codec=codec) as (_, writer, reader):
        for message in messages:
            await writer.aput(message)
        await writer.aput_many(messages)
        assert [await reader.aget() for _ in messages] == messages
        assert await reader.aget_many(100) == messages
        with pytest.raises(TypeError):
            await writer.aput(1, 2)


async def test_a_codec_that_refuses_its_message_says_so_once() -> None:
    with pair(codec="msgpack") as (_, writer, reader):
        with writer.acquire_write(1) as slot:
            slot.data[:] = b"\xc1"  # what msgpack never writes
        await writer.aput("after")
        with pytest.raises(ValueError, match=r"(?i)msgpack|malformed|invalid"):
            await reader.aget()
        assert await reader.aget() == "after"


async def test_a_queue_with_one_reader_reads_for_itself() -> None:
    with Queue(capacity="64 KiB") as queue, queue.writer() as writer:
        taking = asyncio.create_task(queue.acquire_read())
        await asyncio.sleep(0)
        writer.put_many([content(sequence) for sequence in range(4)])
        with await taking as slot:
            assert number(slot.data) == 0
        assert number(await queue.aget()) == 1
        assert number(queue.get()) == 2
        async for payload in queue:
            assert number(payload) == 3
            break


async def test_ends_and_queue_are_async_context_managers() -> None:
    async with Queue(capacity="64 KiB") as queue:
        async with queue.writer() as writer, queue.reader() as reader:
            await writer.aput(content(0))
            assert number(await reader.aget()) == 0
            await queue.ready(timeout=60)
        assert writer.closed and reader.closed
        await writer.aclose()
    await queue.aclose()
