"""Tasks that write: first in, first out, through one claim, past cancelled waiters, and in messages above the ring."""

from __future__ import annotations

import asyncio
import random

import pytest
from async_rig import FITS, WHOLE, assert_whole, content, fill, number, numbers, pair, suspended, turns

from aiospin import Full, WriterBusy

LARGE = 300_000  # payload bytes; the ring has 65536


async def test_waiting_writers_are_served_first_in_first_out() -> None:
    with pair() as (queue, writer, reader):
        count = fill(writer)
        sending = [asyncio.ensure_future(writer.aput(content(count + i, WHOLE))) for i in range(3 * FITS)]
        await suspended(writer, 3 * FITS)
        received: list[int] = []
        while len(received) < count + len(sending):
            received.append(number(await reader.aget()))
        assert received == list(range(count + len(sending)))
        await asyncio.gather(*sending)
        assert_whole(queue, writer, reader)


async def test_a_newcomer_does_not_pass_those_who_wait() -> None:
    with pair() as (queue, writer, reader):
        count = fill(writer)
        waiting = asyncio.ensure_future(writer.aput(content(count, WHOLE)))
        await suspended(writer)
        reader.get_many(2)
        # There is room now, and the waiter has not run yet.
        newcomer = asyncio.ensure_future(writer.aput(b"\xff"))
        with pytest.raises(Full):
            writer.put_nowait(b"x")
        with pytest.raises(WriterBusy):
            writer.put(b"x")
        with pytest.raises(WriterBusy):
            writer.try_acquire_write(1)
        await asyncio.gather(waiting, newcomer)
        rest = await reader.aget_many(1000)
        assert numbers(rest[:-1]) == list(range(2, count + 1)) and rest[-1] == b"\xff"
        assert_whole(queue, writer, reader)


@pytest.mark.parametrize("victims", [(3,), (0,), (9,), (0, 1, 2), (4, 5, 8), tuple(range(9))])
async def test_cancelled_waiters_leave_no_gap(victims: tuple[int, ...]) -> None:
    with pair() as (queue, writer, reader):
        count = fill(writer)
        sending = [asyncio.ensure_future(writer.aput(content(count + i, WHOLE))) for i in range(10)]
        await suspended(writer, 10)
        for victim in victims:
            sending[victim].cancel()
        await suspended(writer, 10 - len(victims))
        expected = [*range(count), *(count + i for i in range(10) if i not in victims)]
        received: list[int] = []
        while len(received) < len(expected):
            received.append(number(await reader.aget()))
        assert received == expected
        results = await asyncio.gather(*sending, return_exceptions=True)
        assert [i for i, result in enumerate(results) if result is not None] == sorted(victims)
        assert_whole(queue, writer, reader)


async def test_a_cancelled_head_passes_its_turn_on() -> None:
    with pair() as (queue, writer, reader):
        count = fill(writer)
        head, second = (asyncio.ensure_future(writer.aput(content(count + i, WHOLE))) for i in range(2))
        await suspended(writer, 2)
        reader.get_many(1)
        head.cancel()  # room is there, and the head is the one that was told
        await second
        assert head.cancelled()
        assert numbers(await reader.aget_many(1000))[-1] == count + 1
        assert_whole(queue, writer, reader)


async def test_writers_cancelled_at_random_keep_the_order_of_the_rest() -> None:
    chance = random.Random(5)
    with pair() as (queue, writer, reader):
        sent: list[int] = []
        received: list[int] = []

        async def send(sequence: int) -> None:
            await writer.aput(content(sequence, WHOLE))
            sent.append(sequence)

        tasks: list[asyncio.Task[None]] = []
        for sequence in range(3000):
            tasks.append(asyncio.create_task(send(sequence)))
            if chance.random() < 0.5:
                chance.choice(tasks[-12:]).cancel()
            if chance.random() < 0.4:
                await asyncio.sleep(0)
            while chance.random() < 0.4 and (slot := reader.try_acquire_read()) is not None:
                with slot:
                    received.append(number(slot.data))
        while not all(task.done() for task in tasks):
            received += numbers(await reader.aget_many(10))
        received += numbers(reader.get_many(1000)) if queue.statistics().depth else []
        assert received == sent == sorted(sent)
        assert 500 < sum(task.cancelled() for task in tasks) < 2500
        assert_whole(queue, writer, reader)


async def test_an_outstanding_claim_holds_the_others_back() -> None:
    with pair() as (queue, writer, reader):
        claim = await writer.acquire_write(WHOLE)
        sending = [asyncio.ensure_future(writer.aput(content(i + 1, WHOLE))) for i in range(3)]
        claiming = asyncio.ensure_future(writer.acquire_write(WHOLE))
        await suspended(writer, 4)
        await turns()
        assert not any(task.done() for task in (*sending, claiming))
        with pytest.raises(Full):
            writer.put_nowait(b"x")
        with pytest.raises(WriterBusy):
            writer.put(b"x")
        claim.data[:] = content(0, WHOLE)
        claim.publish()
        await asyncio.gather(*sending)
        with await claiming as second:
            second.data[:] = content(4, WHOLE)
        assert numbers(await reader.aget_many(9)) == [0, 1, 2, 3, 4]
        assert_whole(queue, writer, reader)


async def test_an_aborted_claim_lets_the_next_go_on() -> None:
    with pair() as (queue, writer, reader):
        claim = await writer.acquire_write(WHOLE)
        waiting = asyncio.ensure_future(writer.aput(content(1)))
        await suspended(writer)
        claim.abort()
        await waiting
        assert numbers(await reader.aget_many(9)) == [1]
        assert_whole(queue, writer, reader)


async def test_a_cancelled_wait_behind_a_claim_changes_nothing() -> None:
    with pair() as (queue, writer, reader):
        claim = await writer.acquire_write(8)
        first, second = (asyncio.ensure_future(writer.aput(content(i))) for i in (1, 2))
        await suspended(writer, 2)
        first.cancel()
        await suspended(writer, 1)
        claim.data[:] = content(0, 8)
        claim.publish()
        await second
        assert numbers(await reader.aget_many(9)) == [0, 2]
        assert_whole(queue, writer, reader)


async def test_tasks_share_a_writer_while_a_reader_drains() -> None:
    with pair() as (queue, writer, reader):

        async def send(task: int) -> None:
            for i in range(200):
                await writer.aput(content(task * 1000 + i, WHOLE))

        sending = [asyncio.create_task(send(task)) for task in range(8)]
        received = [number(await reader.aget()) for _ in range(1600)]
        await asyncio.gather(*sending)
        for task in range(8):
            assert [n for n in received if n // 1000 == task] == [task * 1000 + i for i in range(200)]
        assert_whole(queue, writer, reader)


@pytest.mark.parametrize("way", ["aput", "acquire_write", "aput_many"])
async def test_messages_larger_than_the_ring_pass_through_it(way: str) -> None:
    with pair() as (queue, writer, reader):

        async def send() -> None:
            for sequence in range(6):
                payload = content(sequence, LARGE if sequence % 2 == 0 else 100)
                if way == "aput":
                    await writer.aput(payload[:1000], payload[1000:])
                elif way == "aput_many":
                    await writer.aput_many([payload])
                else:
                    async with writer.acquire_write(len(payload)) as slot:
                        slot.data[:] = payload

        sending = asyncio.create_task(send())
        assert numbers([await reader.aget() for _ in range(3)]) == [0, 1, 2]
        async with reader.acquire_read() as slot:
            assert (slot.sequence, number(slot.data)) == (3, 3)
        async with reader.acquire_read() as slot:
            assert (slot.sequence, len(slot), number(slot.data)) == (4, LARGE, 4)
        assert numbers(await reader.aget_many(2)) == [5]
        await sending
        assert_whole(queue, writer, reader)


async def test_a_large_message_cancelled_half_way_is_not_seen() -> None:
    with pair() as (queue, writer, reader):
        for sequence in range(20):
            half = asyncio.ensure_future(writer.aput(content(777, LARGE)))
            await suspended(writer)
            for _ in range(sequence % 4):  # some fragments further
                before = queue.statistics().published
                with pytest.raises(TimeoutError):
                    await reader.aget(timeout=0)
                while queue.statistics().published == before:
                    await asyncio.sleep(0)
                await turns()
            half.cancel()
            await asyncio.gather(half, return_exceptions=True)
            assert half.cancelled()
            whole = asyncio.ensure_future(writer.aput(content(sequence, LARGE if sequence % 3 else 100)))
            async with reader.acquire_read() as slot:
                assert number(slot.data) == sequence
            await whole
        assert queue.statistics().leases == 0
        assert_whole(queue, writer, reader)


async def test_a_read_cancelled_half_way_through_a_large_message_loses_nothing() -> None:
    with pair() as (queue, writer, reader):
        for sequence in range(10):
            sending = asyncio.ensure_future(writer.aput(content(sequence, LARGE)))
            cancelled = 0
            while True:
                taking = asyncio.ensure_future(reader.aget())
                await turns(1 + cancelled % 3)
                if cancelled < 20 and taking.cancel():
                    cancelled += 1
                    await asyncio.gather(taking, return_exceptions=True)
                    continue
                assert number(await taking) == sequence
                break
            await sending
            assert cancelled
        assert_whole(queue, writer, reader)


async def test_many_messages_cancelled_half_way_are_a_prefix() -> None:
    with pair() as (queue, writer, reader):
        sending = asyncio.ensure_future(writer.aput_many([content(i, WHOLE) for i in range(4 * FITS)]))
        await suspended(writer)
        received = numbers(reader.get_many(10))
        await turns()
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        received += numbers(reader.get_many(1000))
        assert received == list(range(len(received))) and FITS <= len(received) < 4 * FITS
        assert_whole(queue, writer, reader)


async def test_a_payload_may_be_reused_as_soon_as_put_returns() -> None:
    with pair() as (_, writer, reader):
        payload = bytearray(content(0, WHOLE))
        await writer.aput(payload)
        payload[:] = content(1, WHOLE)
        await writer.aput(payload)
        payload[:] = bytes(WHOLE)
        assert numbers(await reader.aget_many(2)) == [0, 1]
