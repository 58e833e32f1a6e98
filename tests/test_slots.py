"""Leases: how long the bytes of a message stay put, and who keeps them."""

from __future__ import annotations

import gc
import itertools
import random
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from ends import LARGEST, RING, content, ends, fill, pair

import aiospin

pytestmark = pytest.mark.usefixtures("leaves_nothing")


def leases(reader: Any) -> int:
    count: int = reader._counters()["leases"]
    return count


def take(reader: Any) -> Any:
    slot = reader.try_acquire_read()
    assert slot is not None
    return slot


def test_a_slot_says_what_it_is() -> None:
    with pair() as (writer, reader):
        writer.put_many([b"first", b""])
        with reader.acquire_read() as slot:
            assert (slot.sequence, slot.size, len(slot), slot.redelivered, slot.released) == (0, 5, 5, False, False)
            assert isinstance(slot, aiospin.ReadSlot)
            assert slot.data.readonly and slot.data.format == "B" and slot.data.contiguous
            assert "5 bytes" in repr(slot)
        assert slot.released and "released" in repr(slot)
        with reader.acquire_read() as slot:
            assert (slot.sequence, slot.size, bytes(slot.data)) == (1, 0, b"")


def test_nobody_writes_through_a_lease() -> None:
    with pair() as (writer, reader):
        writer.put(b"payload")
        with reader.acquire_read() as slot:
            with pytest.raises(TypeError):
                slot.data[0] = 1
            array = np.frombuffer(slot.data, np.uint8)
            assert not array.flags.writeable
            del array


def test_a_released_slot_shows_nothing() -> None:
    with pair() as (writer, reader):
        writer.put(b"payload")
        slot = take(reader)
        slot.release()
        slot.release()
        with pytest.raises(ValueError, match="released"):
            _ = slot.data
        with pytest.raises(ValueError, match="released"):
            with slot:
                pass
        assert leases(reader) == 0


VIEWS: dict[str, Callable[[Any], Any]] = {
    "data": lambda slot: slot.data,
    "slice": lambda slot: slot.data[10:20],
    "slice_of_slice": lambda slot: slot.data[10:200][5:50],
    "view_of_view": lambda slot: memoryview(memoryview(slot.data)),
    "cast": lambda slot: slot.data[:80].cast("d"),
    "numpy": lambda slot: np.frombuffer(slot.data, np.uint8),
    "numpy_slice": lambda slot: np.frombuffer(slot.data, np.uint8)[100:200],
    "numpy_reshaped": lambda slot: np.frombuffer(slot.data, np.uint8).reshape(10, -1).T,
    "numpy_view": lambda slot: np.frombuffer(slot.data, np.uint8)[:96].view(np.float64),
    "view_of_numpy": lambda slot: memoryview(np.frombuffer(slot.data, np.uint8)),
    "slot_that_left": lambda slot: (slot, slot.data),
}


@pytest.mark.parametrize("kind", VIEWS)
@pytest.mark.parametrize("size", [1000, 5 * RING], ids=["in_place", "private"])
def test_bytes_stay_while_any_view_lives(kind: str, size: int) -> None:
    with pair() as (writer, reader):
        send(writer, reader, content(0, size))
        with reader.acquire_read() as slot:
            view = VIEWS[kind](slot)
            with pytest.raises(BufferError):
                slot.release()
            assert not slot.released
        assert slot.released
        assert leases(reader) == 1
        before = snapshot(view)
        fill(writer, sequence=1)
        assert snapshot(view) == before
        assert leases(reader) == 1
        del view, slot
        gc.collect()
        assert leases(reader) == 0


def snapshot(view: Any) -> bytes:
    return view[1].tobytes() if isinstance(view, tuple) else bytes(view.tobytes())


def send(writer: Any, reader: Any, message: bytes) -> None:
    """Put a message of any size: what is larger than the ring needs a reader at the other end."""
    if len(message) <= LARGEST:
        writer.put(message)
        return
    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(writer.put, message)
        untouched = reader.acquire_read()
        slot = untouched.__enter__()
        sending.result()
        del untouched, slot  # goes back to the reader, and comes next


@pytest.mark.parametrize("outer", ["memoryview", "numpy"])
def test_releasing_a_memoryview_does_not_free_what_others_see(outer: str) -> None:
    """`memoryview.release()` ignores arrays that live on top of it."""
    with pair() as (writer, reader):
        writer.put(content(0, 1000))
        with reader.acquire_read() as slot:
            data = slot.data
            other = np.frombuffer(data, np.uint8) if outer == "numpy" else memoryview(data)
            data.release()
        del data
        fill(writer, sequence=1)
        assert bytes(other) == content(0, 1000)
        assert leases(reader) == 1
        del other
        assert leases(reader) == 0


def test_a_released_memoryview_frees_the_slot() -> None:
    with pair() as (writer, reader):
        writer.put(b"payload")
        slot = take(reader)
        with slot.data as data:
            assert bytes(data) == b"payload"
        del data
        slot.release()
        assert slot.released and leases(reader) == 0


def test_numpy_of_a_view_inside_a_with_is_never_dangling() -> None:
    with pair() as (writer, reader):
        arrays = []
        for sequence in range(20):
            writer.put(content(sequence, 800))
            with reader.acquire_read() as slot:
                arrays.append(np.frombuffer(slot.data, np.uint8))
        fill(writer, sequence=20)
        assert [array.tobytes() for array in arrays] == [content(sequence, 800) for sequence in range(20)]
        arrays.clear()


def test_an_exception_in_the_body_releases_and_is_not_masked() -> None:
    with pair() as (writer, reader):
        writer.put_many([b"a", b"b"])
        with pytest.raises(KeyError, match="mine"):
            with reader.acquire_read() as slot:
                kept = slot.data
                raise KeyError("mine")
        assert bytes(kept) == b"a"
        del kept, slot
        gc.collect()
        assert leases(reader) == 0 and reader.get() == b"b"


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))), ids=lambda order: "".join(map(str, order)))
def test_slots_are_released_in_any_order(order: tuple[int, ...]) -> None:
    """The room comes back behind the oldest slot that is held."""
    with ends() as (queue, writer, (reader,)):
        writer.put_many([content(sequence, 1000) for sequence in range(4)])
        slots = [take(reader) for _ in range(4)]
        held = set(range(4))
        for index in order:
            assert bytes(slots[index].data) == content(index, 1000)
            slots[index].release()
            held.remove(index)
            assert queue.statistics().depth == (4 - min(held, default=4)) * 1088
        assert leases(reader) == 0


def test_many_slots_held_and_released_at_random() -> None:
    chance = random.Random(1)
    with ends() as (queue, writer, (reader,)):
        held: dict[int, Any] = {}
        put = taken = 0
        for _ in range(5000):
            if chance.random() < 0.5 and put - taken < 20:
                try:
                    writer.put_nowait(content(put, put * 97 % 3000))
                    put += 1
                except aiospin.Full:
                    assert held or put > taken
            elif chance.random() < 0.6 and taken < put:
                held[taken] = take(reader)
                assert held[taken].sequence == taken
                taken += 1
            elif held:
                number = chance.choice(sorted(held))
                slot = held.pop(number)
                assert bytes(slot.data) == content(number, number * 97 % 3000)
                slot.release()
        for number, slot in held.items():
            assert bytes(slot.data) == content(number, number * 97 % 3000)
            slot.release()
        for number in range(taken, put):
            assert reader.get() == content(number, number * 97 % 3000)
        assert queue.statistics().depth == 0 and put > 500


def test_an_untouched_slot_goes_back_and_comes_next() -> None:
    with pair() as (writer, reader):
        writer.put_many([b"0", b"1", b"2", b"3"])
        first, second, third = take(reader), take(reader), take(reader)
        assert (first.sequence, len(second), third.redelivered) == (0, 1, False)  # looking at these is no touch
        del second
        gc.collect()
        assert reader.get() == b"1"
        del third, first
        gc.collect()
        assert [reader.get() for _ in range(3)] == [b"0", b"2", b"3"]


def test_a_touched_slot_that_is_forgotten_is_released_with_a_warning() -> None:
    with pair() as (writer, reader):
        writer.put_many([b"0", b"1"])
        slot = take(reader)
        assert bytes(slot.data) == b"0"
        with pytest.warns(ResourceWarning, match="never released"):
            del slot
            gc.collect()
        assert reader.get() == b"1" and leases(reader) == 0


def test_a_forgotten_slot_with_a_living_view_is_no_leak() -> None:
    with pair() as (writer, reader):
        writer.put(content(0, 1000))
        view = take(reader).data
        gc.collect()
        fill(writer, sequence=1)
        assert bytes(view) == content(0, 1000)
        del view
        assert leases(reader) == 0


def test_a_slot_in_a_cycle_comes_back_too() -> None:
    with pair() as (writer, reader):
        writer.put_many([b"0", b"1"])
        cycle: list[Any] = [take(reader)]
        cycle.append(cycle)
        del cycle
        gc.collect()
        assert reader.get() == b"0"


def test_leases_outlive_the_reader_that_gave_them() -> None:
    with ends() as (queue, writer, (reader,)):
        writer.put(content(0, 1000))
        slot = take(reader)
        view = np.frombuffer(slot.data, np.uint8)
        reader.close()
        fill(writer, sequence=1)
        assert view.tobytes() == content(0, 1000)
        successor = queue.reader(0)
        with pytest.raises(aiospin.RoleTaken):
            successor.get(timeout=0)
        with slot:  # its end is legal still
            pass
        with pytest.raises(aiospin.RoleTaken):
            successor.get(timeout=0)
        del view, slot
        gc.collect()
        with successor:
            with pytest.raises(aiospin.Empty):
                successor.get_nowait()
            writer.put(b"for the successor")
            assert successor.get() == b"for the successor"


def test_leases_outlive_the_queue_and_its_descriptors() -> None:
    with ends(readers=2) as (_, writer, (first, second)):
        writer.put(content(0, 1000))
        kept = [take(reader).data for reader in (first, second)]
        writer.close()
        second.close()
        first.close()
    del writer, first, second, _
    gc.collect()
    assert [bytes(view) for view in kept] == [content(0, 1000)] * 2
    kept.clear()
    gc.collect()


def test_the_reader_is_kept_by_its_slots_and_not_the_other_way_round() -> None:
    with pair() as (writer, reader):
        writer.put_many([b"0", b"1"])
        slot = take(reader)
        data = slot.data
        gone = weakref.finalize(data.obj, lambda: None) if hasattr(data.obj, "__weakref__") else None
        slot = take(reader)
        del data, slot
        gc.collect()
        assert gone is None or not gone.alive
        assert reader.get() == b"1"


@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 1000, LARGEST, RING, 3 * RING])
def test_payloads_begin_on_a_cache_line(size: int) -> None:
    with pair() as (writer, reader):
        send(writer, reader, content(0, size))
        with reader.acquire_read() as slot:
            address = np.frombuffer(slot.data, np.uint8).__array_interface__["data"][0] if size else 0
        if size <= LARGEST:
            assert address % 64 == 0
        claim = writer.try_acquire_write(min(size, 1000))
        if claim.size:
            assert np.frombuffer(claim.data, np.uint8).__array_interface__["data"][0] % 64 == 0
        claim.abort()


def test_a_kept_message_is_the_readers_own_memory() -> None:
    with pair() as (writer, reader):
        writer.put(b"payload")
        slot = take(reader)
        kept = slot.keep()
        assert slot.released and leases(reader) == 0
        assert not kept.readonly and kept.format == "B" and kept.contiguous
        kept[0] = ord("P")
        for sequence in range(3 * RING // 1000):  # the ring goes round over where it was
            writer.put(content(sequence, 1000))
            reader.get()
        assert bytes(kept) == b"Payload"
        writer.put(b"")
        assert bytes(take(reader).keep()) == b""


def test_a_message_in_pieces_is_kept_without_another_copy() -> None:
    """The bytes are those that a view of the slot showed: nobody else has them, so they need not be read-only."""
    whole = content(0, 3 * RING)
    with pair() as (writer, reader), ThreadPoolExecutor(1) as pool:
        sent = pool.submit(writer.put, whole, timeout=60)
        with reader.acquire_read(timeout=60) as slot:
            assert slot._position is None
            address = np.frombuffer(slot.data, np.uint8).ctypes.data
            kept = slot.keep()
            sent.result()
            writer.put(b"next", timeout=0)
            assert np.frombuffer(kept, np.uint8).ctypes.data == address
            assert kept == whole and not kept.readonly
        assert reader.get() == b"next"


def test_a_slot_with_views_or_released_is_not_kept() -> None:
    with pair() as (writer, reader):
        writer.put(b"payload")
        slot = take(reader)
        view = slot.data
        with pytest.raises(BufferError, match="views"):
            slot.keep()
        assert bytes(view) == b"payload" and not slot.released
        del view
        assert slot.keep() == b"payload"
        with pytest.raises(ValueError, match="released"):
            slot.keep()


def test_a_slot_knows_where_it_lies() -> None:
    with pair() as (writer, reader):
        writer.put_many([b"first", b"second"])
        with take(reader) as first, take(reader) as second:
            assert (first._position, second._position) == (64, 192)


def test_get_up_to_copies_what_is_small_and_lends_the_rest() -> None:
    with pair() as (writer, reader):
        writer.put_many([bytes(10), bytes(11), b""])
        assert reader._get_up_to(10) == bytes(10)
        slot = reader._get_up_to(10, 0)
        assert slot.size == 11 and leases(reader) == 1
        slot.release()
        assert reader._get_up_to(10, timeout=0) == b"" and leases(reader) == 0
        with pytest.raises(TimeoutError):
            reader._get_up_to(10, timeout=0)
        with pytest.raises(ValueError):
            writer.put(b"x")
            reader._get_up_to(0)
