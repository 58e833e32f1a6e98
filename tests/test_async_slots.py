"""Slots in the hands of tasks: every way to let go of them, views that outlive them, and errors in their bodies."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import numpy as np
import pytest
from async_rig import FITS, WHOLE, assert_whole, content, fill, number, numbers, pair, suspended

from aiospin import Empty, Full


class Broken(Exception):
    """What a body raises."""


async def test_an_error_in_the_body_releases_the_slot() -> None:
    with pair() as (queue, writer, reader):
        for sequence in range(3 * FITS):  # the ring would be full if one in three leaked
            await writer.aput(content(sequence, WHOLE), timeout=60)
            with pytest.raises(Broken):
                async with reader.acquire_read() as slot:
                    assert number(slot.data) == sequence
                    raise Broken
            assert slot.released
        assert_whole(queue, writer, reader)


async def test_an_error_in_the_body_of_slots_releases_the_slot() -> None:
    with pair() as (queue, writer, reader):
        writer.put_many([content(0), content(1)])
        held: list[Any] = []
        with pytest.raises(Broken):
            async for slot in reader.slots():
                held.append(slot)
                raise Broken
        gc.collect()
        while not held[0].released:  # the loop closes a generator that was left
            await asyncio.sleep(0)
        assert number(await reader.aget()) == 1
        assert_whole(queue, writer, reader)


async def test_an_error_in_the_body_of_a_claim_publishes_nothing() -> None:
    with pair() as (queue, writer, reader):
        for _ in range(3 * FITS):
            with pytest.raises(Broken):
                async with writer.acquire_write(WHOLE) as slot:
                    slot.data[:3] = b"bad"
                    raise Broken
        assert queue.statistics().published == 0
        with pytest.raises(Broken):
            with writer.acquire_write(WHOLE) as slot:
                raise Broken
        assert reader.try_acquire_read() is None
        assert_whole(queue, writer, reader)


async def test_an_untouched_slot_that_dies_is_delivered_next() -> None:
    with pair() as (queue, writer, reader):
        writer.put_many([content(sequence) for sequence in range(3)])
        slot: Any = await reader.acquire_read()
        assert (slot.sequence, slot.size, slot.redelivered) == (0, 8, False)  # looking at these touches nothing
        del slot
        gc.collect()
        assert queue.statistics().leases == 0
        first = await reader.acquire_read()
        assert first.sequence == 0
        second = await reader.acquire_read()
        del second
        gc.collect()
        assert numbers(await reader.aget_many(9)) == [1, 2]
        first.release()
        assert_whole(queue, writer, reader)


async def test_a_waiting_task_gets_the_slot_that_another_lost() -> None:
    with pair() as (queue, writer, reader):
        writer.put(content(0))
        slot: Any = await reader.acquire_read()
        taking = asyncio.ensure_future(reader.aget())
        await suspended(reader)
        del slot
        gc.collect()
        assert number(await taking) == 0
        assert_whole(queue, writer, reader)


async def test_a_touched_slot_that_dies_is_released_with_a_warning() -> None:
    with pair() as (queue, writer, reader):
        writer.put_many([content(0), content(1)])
        slot: Any = await reader.acquire_read()
        assert number(slot.data) == 0
        with pytest.warns(ResourceWarning, match="never released"):
            del slot
            gc.collect()
        assert queue.statistics().leases == 0
        assert number(await reader.aget()) == 1
        assert_whole(queue, writer, reader)


async def test_a_claim_that_dies_is_aborted_with_a_warning() -> None:
    with pair() as (queue, writer, reader):
        claim: Any = await writer.acquire_write(10)
        with pytest.warns(ResourceWarning):
            del claim
            gc.collect()
        writer.put(content(0))
        assert number(await reader.aget()) == 0
        assert_whole(queue, writer, reader)


@pytest.mark.parametrize("kind", ["memoryview", "numpy", "slice", "cast"])
async def test_a_view_that_outlives_its_slot_keeps_the_bytes(kind: str) -> None:
    make = {
        "memoryview": lambda slot: slot.data,
        "numpy": lambda slot: np.frombuffer(slot.data, dtype=np.uint8),
        "slice": lambda slot: slot.data[8:16],
        "cast": lambda slot: slot.data.cast("Q")[:1],
    }[kind]
    with pair() as (queue, writer, reader):
        assert fill(writer) == FITS
        async with reader.acquire_read() as slot:
            view = make(slot)
        before = bytes(view)
        assert slot.released and queue.statistics().leases == 1
        assert numbers(await reader.aget_many(1000)) == list(range(1, FITS))
        with pytest.raises(Full):  # nothing passes the bytes that are still looked at
            for sequence in range(2 * FITS):
                writer.put_nowait(content(sequence + 500, WHOLE))
        assert bytes(view) == before
        waiting = asyncio.ensure_future(writer.aput(content(9999, WHOLE)))
        await suspended(writer)
        del view
        gc.collect()
        await waiting
        assert queue.statistics().leases == 0
        assert number((await reader.aget_many(1000))[-1]) == 9999
        assert_whole(queue, writer, reader)


async def test_an_array_made_of_a_slot_is_the_message() -> None:
    with pair() as (queue, writer, reader):
        sent = np.arange(1000, dtype=np.float32)
        async with writer.acquire_write(sent.nbytes) as claim:
            np.frombuffer(claim.data, dtype=np.float32)[:] = sent
        async with reader.acquire_read() as slot:
            inside = np.frombuffer(slot.data, dtype=np.float32)
            assert not inside.flags.writeable
            assert inside.ctypes.data % 64 == 0
            assert (inside == sent).all()
            total = float(inside.sum())
        assert total == float(sent.sum()) and (inside == sent).all()
        del inside
        gc.collect()
        await writer.aput(sent)
        assert (np.frombuffer(await reader.aget(), dtype=np.float32) == sent).all()
        assert_whole(queue, writer, reader)


async def test_releasing_under_a_view_is_refused_and_the_slot_stays() -> None:
    with pair() as (queue, writer, reader):
        writer.put(content(0, 64))
        slot = await reader.acquire_read()
        view, array = slot.data, np.frombuffer(slot.data, dtype=np.uint8)
        for _ in range(2):
            with pytest.raises(BufferError):
                slot.release()
            assert not slot.released
        view.release()
        with pytest.raises(BufferError):
            slot.release()
        assert bytes(array) == content(0, 64)
        del array, view
        slot.release()
        assert slot.released
        with pytest.raises(ValueError, match="released"):
            slot.data  # noqa: B018
        assert_whole(queue, writer, reader)


async def test_leaving_a_body_never_hides_its_error() -> None:
    with pair() as (queue, writer, reader):
        writer.put(content(0))
        with pytest.raises(Broken):
            async with reader.acquire_read() as slot:
                view = slot.data
                raise Broken
        assert number(view) == 0
        del view
        gc.collect()
        assert_whole(queue, writer, reader)


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0), (1, 3, 0, 2), (2, 0, 3, 1)])
async def test_slots_are_released_in_any_order(order: tuple[int, ...]) -> None:
    with pair() as (queue, writer, reader):
        writer.put_many([content(sequence, WHOLE) for sequence in range(4)])
        slots = [await reader.acquire_read() for _ in range(4)]
        assert [slot.sequence for slot in slots] == [0, 1, 2, 3]
        for held, index in zip((3, 2, 1, 0), order, strict=True):
            assert number(slots[index].data) == index
            slots[index].release()
            assert queue.statistics().leases == held
            oldest = next((i for i in range(4) if not slots[i].released), 4)
            assert queue.statistics().depth == (4 - oldest) * 1088
        assert_whole(queue, writer, reader)


async def test_held_slots_bound_the_writer_and_no_more() -> None:
    with pair() as (queue, writer, reader):
        assert fill(writer) == FITS
        slots = [await reader.acquire_read() for _ in range(FITS)]
        with pytest.raises(Empty):
            reader.get_nowait()
        for index in range(FITS - 1, -1, -1):
            with pytest.raises(Full):
                writer.put_nowait(content(0, WHOLE))
            slots[index].release()
        assert_whole(queue, writer, reader)


async def test_a_slot_is_a_buffer_where_python_lets_it_be_one() -> None:
    with pair() as (queue, writer, reader):
        writer.put(content(5))
        async with reader.acquire_read() as slot:
            with slot.data as view:
                assert view.readonly and number(view) == 5
        claim = await writer.acquire_write(8)
        with claim.data as view:
            assert not view.readonly
            view[:] = content(6, 8)
        claim.publish()
        for again in (claim.publish, lambda: claim.data, lambda: claim.truncate(1)):
            with pytest.raises(ValueError):
                again()
        claim.abort()
        assert number(await reader.aget()) == 6
        with pytest.raises(ValueError, match="9"):
            async with writer.acquire_write(8) as claim:
                claim.truncate(9)
        assert_whole(queue, writer, reader)
