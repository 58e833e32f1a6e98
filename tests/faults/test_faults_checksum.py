"""`checksum=True`: a payload with one bit changed is a CorruptSlot on every way of reading, and never a message.

The reader then stays where it is: it says so again, or goes on if the bytes are as they were. Leaving and coming back
is the way past.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from ends import RING, content, ends

import aiospin
from aiospin import _layout

pytestmark = pytest.mark.usefixtures("leaves_nothing")

SIZE = 40
FIRST = _layout.stride(SIZE)  # where the second message begins: the damaged one


def flip(queue: aiospin.Queue[Any], bit: int, slot: int = FIRST) -> None:
    """Flip a bit of the payload of the slot at a position."""
    segment: Any = queue._segment
    at = _layout.ring_offset(segment.readers) + slot + _layout.SLOT_HEADER_BYTES + bit // 8
    os.pwrite(segment.fd, bytes([os.pread(segment.fd, 1, at)[0] ^ 1 << bit % 8]), at)


def entered(reader: Any) -> None:
    with reader.acquire_read(timeout=0):
        raise AssertionError("a damaged slot was handed out")


WAYS: dict[str, Callable[[Any], Any]] = {
    "acquire_read": entered,
    "try_acquire_read": lambda reader: reader.try_acquire_read(),
    "get": lambda reader: reader.get(timeout=0),
    "get_nowait": lambda reader: reader.get_nowait(),
    "get_many": lambda reader: reader.get_many(5, timeout=0),
    "for": lambda reader: next(iter(reader)),
}


async def async_entered(reader: Any) -> None:
    async with reader.acquire_read(timeout=0):
        raise AssertionError("a damaged slot was handed out")


ASYNC_WAYS: dict[str, Callable[[Any], Coroutine[Any, Any, Any]]] = {
    "acquire_read": async_entered,
    "await acquire_read": lambda reader: reader.acquire_read(timeout=0),
    "aget": lambda reader: reader.aget(timeout=0),
    "aget_many": lambda reader: reader.aget_many(5, timeout=0),
    "async for": lambda reader: anext_of(reader.__aiter__()),
    "slots": lambda reader: anext_of(reader.slots()),
}


async def anext_of(iterator: Any) -> Any:
    try:
        return await iterator.__anext__()
    finally:
        await iterator.aclose()


def put_three(writer: Any, reader: Any) -> None:
    writer.put_many([content(sequence, SIZE) for sequence in range(3)])
    assert reader.get() == content(0, SIZE)


def test_every_bit_of_a_payload_counts() -> None:
    with ends(checksum=True) as (queue, writer, (reader,)):
        put_three(writer, reader)
        for bit in range(8 * SIZE):
            flip(queue, bit)
            with pytest.raises(aiospin.CorruptSlot, match=r"reader 0|slot at"):
                reader.get_nowait()
            flip(queue, bit)
        assert reader.get_many(3) == [content(1, SIZE), content(2, SIZE)]


@pytest.mark.parametrize("way", WAYS)
def test_every_way_of_reading_notices(way: str) -> None:
    with ends(checksum=True) as (queue, writer, (reader,)):
        put_three(writer, reader)
        flip(queue, 77)
        for _ in range(2):  # the reader stays at the slot
            with pytest.raises(aiospin.CorruptSlot):
                WAYS[way](reader)
        flip(queue, 77)
        assert reader.get() == content(1, SIZE)


@pytest.mark.parametrize("way", ASYNC_WAYS)
def test_every_awaited_way_of_reading_notices(way: str, run_async: Callable[[Any], Any]) -> None:
    async def read(reader: Any) -> None:
        for _ in range(2):
            with pytest.raises(aiospin.CorruptSlot):
                await ASYNC_WAYS[way](reader)

    with ends(checksum=True) as (queue, writer, (reader,)):
        put_three(writer, reader)
        flip(queue, 77)
        run_async(read(reader))
        flip(queue, 77)
        assert reader.get() == content(1, SIZE)


def test_what_came_before_is_delivered_first() -> None:
    with ends(checksum=True) as (queue, writer, (reader,)):
        writer.put_many([content(sequence, SIZE) for sequence in range(3)])
        flip(queue, 8)
        assert reader.get_many(3) == [content(0, SIZE)]
        with pytest.raises(aiospin.CorruptSlot):
            reader.get_many(3)


@pytest.mark.parametrize("fragment", [0, 1, 2])
def test_a_bit_in_a_fragment(fragment: int) -> None:
    with ends(checksum=True) as (queue, writer, (reader,)):
        with pytest.raises(TimeoutError):
            writer.put(content(0, 2 * RING), timeout=0)  # as far as the ring goes: four fragments
        flip(queue, 100, fragment * RING // 4)
        for _ in range(2):
            with pytest.raises(aiospin.CorruptSlot):
                reader.get(timeout=0)
        flip(queue, 100, fragment * RING // 4)
        with pytest.raises(TimeoutError):
            reader.get(timeout=0)


def test_the_sum_itself_and_a_flag_that_says_there_is_none() -> None:
    """A queue with checksums checks every slot, whatever the slot says of itself."""
    with ends(checksum=True) as (queue, writer, (reader,)):
        put_three(writer, reader)
        segment: Any = queue._segment
        at = _layout.ring_offset(1) + FIRST + 32
        flags = os.pread(segment.fd, 8, at)
        os.pwrite(segment.fd, bytes(4), at)
        flip(queue, 5)
        with pytest.raises(aiospin.CorruptSlot):
            reader.get(timeout=0)
        flip(queue, 5)
        os.pwrite(segment.fd, flags[:4] + bytes([flags[4] ^ 1]) + flags[5:], at)
        with pytest.raises(aiospin.CorruptSlot):
            reader.get(timeout=0)


def test_the_way_past_a_damaged_slot() -> None:
    """A successor meets it as well; a reader that left for good starts behind it."""
    with ends(checksum=True) as (queue, writer, (reader,)):
        put_three(writer, reader)
        flip(queue, 77)
        reader.detach()
        with queue.reader(0) as successor, pytest.raises(aiospin.CorruptSlot):
            successor.get(timeout=0)
        with queue.reader(0) as newcomer:  # the successor has left for good
            assert newcomer.try_acquire_read() is None
            writer.put(b"behind the damage")
            assert newcomer.get(timeout=60) == b"behind the damage"


def test_without_checksums_a_wrong_payload_is_the_worst() -> None:
    with ends() as (queue, writer, (reader,)):
        put_three(writer, reader)
        flip(queue, 77)
        wrong = reader.get()
        assert len(wrong) == SIZE and wrong != content(1, SIZE)
        assert reader.get() == content(2, SIZE)
