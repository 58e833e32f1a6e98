"""The writer's claims: written in place, published or aborted once, and the sizes that a ring takes."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from ends import LARGEST, RING, asleep, content, ends, fill, pair
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import aiospin

pytestmark = pytest.mark.usefixtures("leaves_nothing")


def claim(writer: Any, size: int) -> Any:
    slot = writer.try_acquire_write(size)
    assert slot is not None
    return slot


def test_a_claim_says_what_it_is() -> None:
    with pair() as (writer, reader):
        with writer.acquire_write(100) as slot:
            assert isinstance(slot, aiospin.WriteSlot)
            assert (slot.size, len(slot), len(slot.data)) == (100, 100, 100)
            assert not slot.data.readonly and "100 bytes" in repr(slot)
            slot.data[:] = content(0, 100)
        assert "ended" in repr(slot)
        assert reader.get() == content(0, 100)


def test_numpy_writes_in_place() -> None:
    with pair() as (writer, reader):
        with writer.acquire_write(800) as slot:
            np.frombuffer(slot.data, np.float64)[:] = np.arange(100)
        assert np.array_equal(np.frombuffer(reader.get(), np.float64), np.arange(100))


def test_nothing_is_visible_before_publish() -> None:
    with pair() as (writer, reader):
        slot = claim(writer, 3)
        slot.data[:] = b"abc"
        assert reader.try_acquire_read() is None
        slot.publish()
        assert reader.get() == b"abc"


def test_truncate() -> None:
    with pair() as (writer, reader):
        for keep in (100, 50, 1, 0):
            slot = claim(writer, 100)
            slot.data[:] = content(keep, 100)
            slot.truncate(keep)
            assert (slot.size, len(slot), len(slot.data)) == (keep, keep, keep)
            slot.publish()
            assert reader.get() == content(keep, 100)[:keep]


@pytest.mark.parametrize("size", [101, -1, 2**70])
def test_a_truncation_must_shrink(size: int) -> None:
    with pair() as (writer, _):
        slot = claim(writer, 100)
        with pytest.raises((ValueError, OverflowError)):
            slot.truncate(size)
        slot.truncate(10)
        with pytest.raises(ValueError, match="11"):
            slot.truncate(11)
        with pytest.raises(TypeError):
            slot.truncate("1")
        slot.abort()


def test_a_truncated_slot_takes_less_of_the_ring() -> None:
    with ends() as (queue, writer, (reader,)):
        with writer.acquire_write(LARGEST) as slot:
            slot.data[:5] = b"small"
            slot.truncate(5)
        assert queue.statistics().published == 128
        assert reader.get() == b"small"


@pytest.mark.parametrize("size", [10, 2 * RING], ids=["in_place", "in_fragments"])
def test_a_claim_ends_once(size: int) -> None:
    with pair() as (writer, reader), ThreadPoolExecutor(1) as pool:
        getting = pool.submit(reader.get)
        slot = claim(writer, size)
        slot.data[:] = content(0, size)
        slot.publish()
        assert getting.result() == content(0, size)
        for again in (slot.publish, lambda: slot.truncate(1), lambda: slot.data, slot.__enter__):
            with pytest.raises(ValueError, match="published or aborted"):
                again()
        slot.abort()
        slot = claim(writer, size)
        slot.abort()
        slot.abort()
        with pytest.raises(ValueError, match="aborted"):
            slot.publish()
        writer.put(b"next")
        with reader.acquire_read() as received:
            assert (received.sequence, bytes(received.data)) == (1, b"next")


def test_a_with_around_a_published_claim_is_fine() -> None:
    with pair() as (writer, reader):
        with writer.acquire_write(1) as slot:
            slot.data[:] = b"x"
            slot.publish()
        with writer.acquire_write(1) as slot:
            slot.abort()
        assert reader.get_many(10) == [b"x"]


@pytest.mark.parametrize("size", [10, 2 * RING], ids=["in_place", "in_fragments"])
def test_an_exception_aborts(size: int) -> None:
    with pair() as (writer, reader):
        with pytest.raises(KeyError, match="mine"):
            with writer.acquire_write(size) as slot:
                slot.data[:5] = b"wrong"
                raise KeyError("mine")
        assert reader.try_acquire_read() is None
        writer.put(b"right")
        with reader.acquire_read() as received:
            assert (received.sequence, bytes(received.data)) == (0, b"right")


def test_a_forgotten_claim_is_aborted_with_a_warning() -> None:
    with pair() as (writer, reader):
        slot = claim(writer, 10)
        with pytest.warns(ResourceWarning, match="aborted"):
            del slot
            gc.collect()
        writer.put(b"next")
        assert reader.get() == b"next"


def test_a_claim_that_outlives_its_writer_publishes_nothing() -> None:
    with ends() as (queue, writer, (reader,)):
        slot = claim(writer, 10)
        writer.close()
        with pytest.raises(aiospin.QueueClosed):
            slot.publish()
        with pytest.raises(aiospin.QueueClosed):
            reader.get(timeout=5)
        assert queue.statistics().published == 0


def test_a_claim_that_outlives_the_queue_publishes_nothing() -> None:
    with ends() as (queue, writer, (reader,)):
        slot = claim(writer, 10)
        queue.shutdown()
        with pytest.raises(aiospin.QueueClosed):
            slot.publish()
        with pytest.raises(aiospin.QueueClosed):
            reader.get()


def test_room_waits_for_the_oldest_reader() -> None:
    with ends(readers=3) as (_, writer, readers), ThreadPoolExecutor(1) as pool:
        count = fill(writer)
        for reader in readers[:2]:
            assert len(reader.get_many(1000)) == count
        putting = pool.submit(writer.put, content(count, 1000))
        asleep(writer)
        assert not putting.done()
        assert readers[2].get() == content(0, 1000)
        putting.result()
        for reader in readers[:2]:
            assert reader.get() == content(count, 1000)


def test_readers_of_different_speed_see_the_same() -> None:
    messages = [content(sequence, sequence * 131 % 5000) for sequence in range(600)]
    with ends(readers=3) as (_, writer, readers), ThreadPoolExecutor(3) as pool:

        def by_one(reader: Any) -> list[bytes]:
            return list(reader)

        def in_batches(reader: Any) -> list[bytes]:
            got: list[bytes] = []
            try:
                while True:
                    got += reader.get_many(100)
            except aiospin.QueueClosed:
                return got

        def holding(reader: Any) -> list[bytes]:
            """Holds a few at a time, and lets them go newest first."""
            got: list[bytes] = []
            held: list[Any] = []
            try:
                while True:
                    held.append(reader.acquire_read().__enter__())
                    got.append(bytes(held[-1].data))
                    if len(held) == 3:
                        while held:
                            held.pop().release()
            except aiospin.QueueClosed:
                while held:
                    held.pop().release()
                return got

        reading = [
            pool.submit(call, reader) for call, reader in zip((by_one, in_batches, holding), readers, strict=True)
        ]
        for message in messages:
            writer.put(message)
        writer.close()
        for future in reading:
            assert future.result() == messages


SIZES = st.lists(
    st.one_of(
        st.integers(0, 200),
        st.integers(0, LARGEST),
        st.sampled_from([0, 1, 63, 64, 65, LARGEST - 1, LARGEST, LARGEST + 1, RING, RING + 1, 3 * RING]),
    ),
    min_size=1,
    max_size=20,
)


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sizes=SIZES, checksum=st.booleans(), in_place=st.booleans())
def test_any_sizes_pass_in_order_through_any_wrap(sizes: list[int], checksum: bool, in_place: bool) -> None:
    with pair(checksum=checksum) as (writer, reader), ThreadPoolExecutor(1) as pool:

        def send() -> None:
            for sequence, size in enumerate(sizes):
                if in_place:
                    with writer.acquire_write(size) as slot:
                        slot.data[:] = content(sequence, size)
                else:
                    half = size // 2
                    message = content(sequence, size)
                    writer.put(message[:half], message[half:])

        sending = pool.submit(send)
        for sequence, size in enumerate(sizes):
            with reader.acquire_read() as slot:
                assert (slot.sequence, slot.size) == (sequence, size)
                assert bytes(slot.data) == content(sequence, size)
        sending.result()
        assert reader.try_acquire_read() is None


@pytest.mark.parametrize("checksum", [False, True])
def test_a_message_of_a_hundred_rings(checksum: bool) -> None:
    message = content(0, 100 * RING + 17)
    with ends(readers=2, checksum=checksum) as (_, writer, readers), ThreadPoolExecutor(2) as pool:
        getting = [pool.submit(reader.get) for reader in readers]
        writer.put(message)
        writer.put(b"after")
        for reader, future in zip(readers, getting, strict=True):
            assert future.result() == message
            assert reader.get() == b"after"


def test_zero_readers_take_any_amount() -> None:
    with ends(readers=0) as (queue, writer, _):
        for sequence in range(200):
            writer.put(content(sequence, 1000))
        writer.put(bytes(5 * RING))
        with writer.acquire_write(3 * RING):
            pass
        statistics = queue.statistics()
        assert (statistics.depth, statistics.lag) == (0, ())


def test_payloads_are_owned_when_put_returns() -> None:
    with pair() as (writer, reader):
        payload = bytearray(b"original")
        writer.put(payload)
        payload[:] = b"replaced"
        payload.clear()  # no export of it is left either
        assert reader.get() == b"original"
