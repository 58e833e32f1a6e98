"""Slots: leases, views, out-of-order release, what the garbage collector does with them, and write claims."""

from __future__ import annotations

import gc
import sys
import threading
import weakref

import numpy as np
import pytest
from fallback_rig import PAGE, content, rig

from aiospin import _layout
from aiospin._errors import QueueClosed, WriterBusy
from aiospin._fallback import ReadSlot


def take(reader: object) -> ReadSlot:
    slot = reader.try_acquire_read()  # type: ignore[attr-defined]
    assert isinstance(slot, ReadSlot)
    return slot


def test_release_moves_past_the_oldest_run() -> None:
    with rig() as queue:
        writer, reader = queue.writer(), queue.reader()
        writer.put_many([content(i, 50) for i in range(5)])
        slots = [take(reader) for _ in range(5)]
        assert reader._counters()["leases"] == 5
        ends = [_layout.stride(50) * (i + 1) for i in range(5)]
        assert queue.lines(_layout.READER_ACQUIRED) == ends[4]
        for index, released in ((1, 0), (3, 0), (0, ends[1]), (2, ends[3])):
            slots[index].release()
            slots[index].release()
            assert queue.released() == released
            assert slots[index].released and not slots[4].released
        assert reader._counters()["leases"] == 1
        slots[4].release()
        assert queue.released() == queue.published() and reader._counters()["leases"] == 0


def test_a_get_between_leases_waits_for_them() -> None:
    with rig() as queue:
        writer, reader = queue.writer(), queue.reader()
        writer.put_many([b"a", b"b", b"c"])
        first = take(reader)
        assert reader.get() == b"b"
        assert queue.released() == 0
        first.release()
        assert queue.released() == 2 * _layout.stride(1)


def test_slot_is_what_it_says() -> None:
    with rig() as queue:
        writer, reader = queue.writer(), queue.reader()
        writer.put(b"payload")
        slot = take(reader)
        assert (slot.sequence, slot.size, len(slot), slot.redelivered) == (0, 7, 7, False)
        assert slot.data.readonly and slot.data.format == "B" and slot.data == b"payload"
        address = np.frombuffer(slot.data, np.uint8).ctypes.data
        assert address % 64 == 0
        assert "0: 7 bytes" in repr(slot)
        slot.release()
        assert "released" in repr(slot)
        with pytest.raises(ValueError, match="released"):
            slot.data  # noqa: B018
        with pytest.raises(ValueError, match="released"):
            slot.__enter__()


@pytest.mark.skipif(sys.version_info < (3, 12), reason="needs Python 3.12")
def test_slots_are_buffers() -> None:
    with rig() as queue:
        writer, reader = queue.writer(), queue.reader()
        claim = writer.try_acquire_write(4)
        assert claim is not None
        memoryview(claim)[:] = b"four"  # type: ignore[arg-type]
        claim.publish()
        slot = take(reader)
        view = memoryview(slot)  # type: ignore[arg-type]
        assert view == b"four" and view.readonly
        array = np.frombuffer(slot, np.uint8)  # type: ignore[call-overload]
        with pytest.raises(BufferError):
            slot.release()
        del view
        with pytest.raises(BufferError):
            slot.release()
        del array
        slot.release()
        assert queue.released() == queue.published()


def test_release_with_views_is_refused_and_still_leased() -> None:
    with rig() as queue:
        writer, reader = queue.writer(), queue.reader()
        writer.put(content(0, 100))
        slot = take(reader)
        array = np.frombuffer(slot.data[10:], np.uint8)[5:]
        with pytest.raises(BufferError, match="message 0"):
            slot.release()
        assert not slot.released and slot.data == content(0, 100)
        assert queue.released() == 0 and reader._counters()["leases"] == 1
        del array
        slot.release()
        assert queue.released() == queue.published()


def test_leaving_with_views_keeps_the_bytes_until_they_die() -> None:
    with rig() as queue:
        writer, reader = queue.writer(), queue.reader()
        writer.put(content(0, 100))
        with reader.acquire_read() as slot:
            array = np.frombuffer(slot.data, np.uint8)
        assert slot.released and queue.released() == 0
        assert reader._counters()["leases"] == reader._counters()["views"] == 1
        with pytest.raises(TimeoutError):
            writer.put_many([bytes(1000)] * 9, timeout=0)
        assert array.tobytes() == content(0, 100)
        del array
        assert queue.released() == _layout.stride(100)
        assert reader._counters()["leases"] == reader._counters()["views"] == 0


def test_leaving_never_hides_the_error_of_the_body() -> None:
    with rig() as queue:
        writer, reader = queue.writer(), queue.reader()
        writer.put(b"x")
        kept = []
        with pytest.raises(KeyError, match="mine"):
            with reader.acquire_read() as slot:
                kept.append(slot.data)
                raise KeyError("mine")
        assert kept[0] == b"x"
        kept.clear()
        assert queue.released() == queue.published()


class Anchor:
    """Stands for the held role."""


def test_views_outlive_everything_and_keep_the_role() -> None:
    with rig() as queue:
        writer, reader = queue.writer(), queue.reader()
        reader.anchor = Anchor()
        held = weakref.ref(reader.anchor)
        writer.put_many([content(0, 100), b"untouched", b"unseen"])
        with reader.acquire_read() as slot:
            view = slot.data
        untouched = take(reader)
        reader.anchor = None
        reader._shut(None)
        writer._shut(None)
        queue.mapping.close()
        queue.mapping = queue.map()
        queue.endpoints.clear()
        del slot, reader, writer
        gc.collect()
        assert view == content(0, 100) and queue.released() == 0
        del view
        assert queue.released() == _layout.stride(100)  # the role is still ours, so this may be said
        assert held() is not None
        del untouched
        assert held() is None
        assert queue.released() == _layout.stride(100)  # nobody saw it: it is the successor's
        assert queue.reader().get() == b"untouched"


def test_a_shut_reader_without_leases_lets_go_at_once() -> None:
    with rig() as queue:
        writer, reader = queue.writer(), queue.reader()
        for end in (writer, reader):
            end.anchor = Anchor()
            held = weakref.ref(end.anchor)
            end.fileno()
            end.anchor = None
            assert held() is not None
            end._shut(None)
            assert held() is None


def test_a_claim_keeps_the_role_of_a_shut_writer() -> None:
    with rig() as queue:
        writer = queue.writer()
        writer.anchor = Anchor()
        held = weakref.ref(writer.anchor)
        claim = writer.try_acquire_write(8)
        writer.anchor = None
        writer._shut(None)
        assert claim is not None and held() is not None
        claim.data[:] = b"nowhere."
        claim.abort()
        assert held() is None


def test_an_untouched_slot_goes_back_and_comes_next() -> None:
    with rig() as queue:
        writer, reader = queue.writer(), queue.reader()
        writer.put_many([b"a", b"b", b"c"])
        slot = take(reader)
        later = take(reader)
        assert slot.sequence == 0 and not slot.released and len(slot) == 1  # looking is not touching
        del slot
        assert reader._cursor == 0 and reader._ready() and reader._counters()["leases"] == 1
        assert queue.released() == 0
        later.release()
        again = take(reader)
        assert again.data == b"a" and again.sequence == 0
        again.release()
        assert reader.get() == b"c"
        assert queue.released() == queue.published()
        assert reader._counters()["messages"] == 3


def test_two_untouched_slots_come_back_in_order() -> None:
    with rig() as queue:
        writer, reader = queue.writer(), queue.reader()
        writer.put_many([b"a", b"b", b"c"])
        slots = [take(reader), take(reader)]
        del slots[1]
        slots.clear()
        assert reader.get_many(9) == [b"a", b"b", b"c"]


def test_an_untouched_slot_wakes_a_waiter() -> None:
    with rig() as queue:
        writer, reader = queue.writer(), queue.reader()
        writer.put(b"a")
        slot = take(reader)
        got: list[bytes] = []
        waiting = threading.Event()
        reader.when_parked = waiting.set
        thread = threading.Thread(target=lambda: got.append(reader.get()))
        thread.start()
        waiting.wait()
        del slot
        thread.join()
        assert got == [b"a"]


def test_a_touched_slot_is_released_with_a_warning() -> None:
    with rig() as queue:
        writer, reader = queue.writer(), queue.reader()
        writer.put(b"a")
        slot = take(reader)
        assert slot.data == b"a"
        with pytest.warns(ResourceWarning, match="never released"):
            del slot
        assert queue.released() == queue.published()


def test_a_forgotten_slot_with_views_is_no_leak() -> None:
    with rig() as queue:
        writer, reader = queue.writer(), queue.reader()
        writer.put(b"a")
        view = take(reader).data
        gc.collect()
        assert view == b"a" and queue.released() == 0
        del view
        assert queue.released() == queue.published()


def test_a_slot_in_a_cycle_comes_back_too() -> None:
    with rig() as queue:
        writer, reader = queue.writer(), queue.reader()
        writer.put(b"a")
        slot = take(reader)
        cycle: list[object] = [slot]
        cycle.append(cycle)
        del slot, cycle
        gc.collect()
        assert reader.get() == b"a"


def test_a_collection_in_the_middle_of_a_take_is_applied_afterwards() -> None:
    """The collector may run a finalizer while the same thread holds the core's lock."""
    with rig() as queue:
        writer, reader = queue.writer(), queue.reader()
        writer.put_many([b"a", b"b"])
        slot = take(reader)
        core = reader._core
        assert core is not None
        core._enter()
        del slot
        assert core.leases == 1
        core._exit()
        assert core.leases == 0
        assert reader.get_many(2) == [b"a", b"b"]


def test_an_exception_in_the_middle_of_a_take_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C may come between any two lines; here, at the copy and where the slot is made."""
    with rig() as queue:
        writer, reader = queue.writer(), queue.reader()
        writer.put_many([content(i, 10) for i in range(3)])
        reader.fileno()
        core = reader._core
        assert core is not None

        def interrupt(*_: object) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(core, "copy", interrupt)
            with pytest.raises(KeyboardInterrupt):
                reader.get_many(3)
        assert reader.get_many(9) == [content(i, 10) for i in range(3)]
        assert queue.released() == queue.published()
        writer.put_many([b"a", b"b"])
        with pytest.raises(KeyboardInterrupt):
            core.take_record(interrupt)
        assert reader.get_many(9) == [b"a", b"b"]
        assert queue.released() == queue.published() and reader._counters()["leases"] == 0


def test_write_claims() -> None:
    with rig() as queue:
        writer, reader = queue.writer(), queue.reader()
        with writer.acquire_write(100) as slot:
            assert writer._claimed and len(slot) == 100
            slot.data[:5] = b"hello"
            slot.truncate(5)
            assert len(slot.data) == slot.size == 5
            with pytest.raises(ValueError, match="truncated to 6"):
                slot.truncate(6)
            assert reader.try_acquire_read() is None
            with pytest.raises(WriterBusy):
                writer.put(b"x")
            with pytest.raises(WriterBusy):
                with writer.acquire_write(1):
                    pass
            with pytest.raises(WriterBusy):
                writer.try_acquire_write(1)
        assert not writer._claimed and reader.get() == b"hello"
        slot.abort()
        for call in (slot.publish, lambda: slot.data, lambda: slot.truncate(0), slot.__enter__):
            with pytest.raises(ValueError, match="ended"):
                call()


def test_an_exception_aborts_and_leaves_no_trace() -> None:
    with rig() as queue:
        writer, reader = queue.writer(), queue.reader()
        with pytest.raises(KeyError):
            with writer.acquire_write(100):
                raise KeyError
        with writer.acquire_write(100) as slot:
            slot.abort()
        with writer.acquire_write(1) as slot:
            slot.data[:] = b"p"
            slot.publish()
        assert (reader.get(), reader.try_acquire_read()) == (b"p", None)
        assert writer._sequence == 1


def test_a_forgotten_claim_is_aborted_with_a_warning() -> None:
    with rig() as queue:
        writer = queue.writer()
        slot = writer.try_acquire_write(10)
        assert slot is not None
        with pytest.warns(ResourceWarning, match="never published"):
            del slot
        writer.put(b"x")
        assert queue.reader().get() == b"x"


def test_a_claim_that_outlives_the_queue_publishes_nothing() -> None:
    with rig() as queue:
        writer = queue.writer()
        slot = writer.try_acquire_write(10)
        assert slot is not None
        queue.set_control(_layout.CONTROL_SHUTDOWN, 1)
        with pytest.raises(QueueClosed):
            slot.publish()
        queue.set_control(_layout.CONTROL_SHUTDOWN, 0)
        slot = writer.try_acquire_write(10)
        assert slot is not None
        writer._shut(None)
        with pytest.raises(QueueClosed):
            slot.publish()
        assert queue.published() == 0


def test_views_of_a_published_claim_keep_the_memory_mapped() -> None:
    with rig() as queue:
        writer, reader = queue.writer(), queue.reader()
        with writer.acquire_write(8) as slot:
            array = np.frombuffer(slot.data, np.uint64)
            array[:] = 7
        assert reader.get() == (7).to_bytes(8, "little")
        assert array[0] == 7


def test_the_largest_slot_fits_and_wraps() -> None:
    largest = PAGE - _layout.SLOT_HEADER_BYTES
    with rig() as queue:
        writer, reader = queue.writer(), queue.reader()
        writer.put(b"shift")
        reader.get()
        with writer.acquire_write(largest) as slot:
            slot.data[:] = content(1, largest)
        with reader.acquire_read() as read:
            assert read.data == content(1, largest)
