"""Ranks that join, leave, die and are dropped; writers that take over from each other."""

from __future__ import annotations

import os

import pytest
from fallback_rig import PAGE, content, rig

from aiospin import _layout
from aiospin._errors import CorruptSlot, Full, QueueClosed, ReaderDropped

LARGEST = PAGE - _layout.SLOT_HEADER_BYTES


def test_every_rank_gates_from_the_start() -> None:
    with rig(readers=2) as queue:
        writer, reader = queue.writer(), queue.reader(0)
        writer.put(bytes(LARGEST))
        reader.get()
        with pytest.raises(Full):
            writer.put_nowait(b"x")
        assert len(queue.reader(1).get()) == LARGEST
        writer.put_nowait(b"x")


def test_a_successor_goes_on_where_its_predecessor_released() -> None:
    with rig() as queue:
        writer, first = queue.writer(), queue.reader()
        writer.put_many([content(i, 10) for i in range(5)])
        assert first.get() == content(0, 10)
        slots = [first.try_acquire_read(), first.try_acquire_read()]
        assert first._core is not None
        first._core.forget()  # as when its process is killed
        second = queue.reader()
        for sequence, again in ((1, True), (2, True), (3, False)):
            slot = second.try_acquire_read()
            assert slot is not None
            assert (slot.sequence, slot.redelivered, bytes(slot.data)) == (sequence, again, content(sequence, 10))
            slot.release()
        before = queue.released()
        for old in slots:
            assert old is not None
            old.release()  # of a holder that has left: nothing moves
        assert queue.released() == before
        assert second._counters()["leases"] == 0


def test_who_has_left_does_not_gate_and_joins_at_the_next_publish() -> None:
    with rig() as queue:
        writer, reader = queue.writer(), queue.reader()
        writer.put(b"first")
        reader.fileno()
        queue.leave(reader)
        for sequence in range(1, 20):
            writer.put(content(sequence, 1000))
        joiner = queue.reader()
        assert joiner.try_acquire_read() is None and not joiner._ready()
        start = writer._cursor
        writer.put(b"hello")
        assert queue.gate(_layout.GATE_START) == start
        assert queue.gate(_layout.GATE_GATE) == queue.lines(_layout.READER_STAY) == 2
        assert joiner._ready()
        slot = joiner.try_acquire_read()
        assert slot is not None
        assert (slot.sequence, slot.redelivered, bytes(slot.data)) == (20, False, b"hello")
        slot.release()
        assert queue.released() == queue.published()
        writer.put_many([bytes(1000)] * 3)
        with pytest.raises(Full):
            writer.put_nowait(bytes(1000))


def test_who_joins_is_confirmed_by_an_attaching_writer_too() -> None:
    with rig() as queue:
        writer, reader = queue.writer(), queue.reader()
        writer.put(b"x")
        reader.fileno()
        queue.leave(reader)
        writer._shut(None)
        joiner = queue.reader()
        assert joiner.arm()
        successor = queue.writer()
        successor.fileno()
        assert os.read(joiner.fileno(), 8)
        assert queue.gate(_layout.GATE_GATE) == 2
        successor.put(b"y")
        assert joiner.get() == b"y"


def test_a_joiner_that_dies_before_its_first_release_starts_there_again() -> None:
    with rig() as queue:
        writer, reader = queue.writer(), queue.reader()
        reader.fileno()
        queue.leave(reader)
        writer.put(b"unseen")
        joiner = queue.reader()
        joiner.fileno()
        writer.put(b"one")
        joiner._shut(None)
        assert queue.reader().get() == b"one"


def test_a_dropped_reader_is_told_and_may_join_anew() -> None:
    with rig() as queue:
        writer, reader = queue.writer(), queue.reader()
        writer.put(content(0, LARGEST))
        assert reader.arm() is False
        slot = reader.try_acquire_read()
        assert slot is not None
        writer._drop(0)
        assert os.read(reader.fileno(), 8) and os.read(writer.fileno(), 8)
        assert reader._ready()
        writer.put_many([bytes(1000)] * 9)
        for call in (reader.get, reader.get_nowait, reader.try_acquire_read):
            with pytest.raises(ReaderDropped, match="reader 0"):
                call()
        slot.release()
        reader._shut(None)
        again = queue.reader()
        assert again.try_acquire_read() is None
        writer.put(b"new")
        assert again.get() == b"new"
        assert queue.lines(_layout.READER_STAY) == 2


def test_a_dropped_reader_that_leaves_does_not_gate() -> None:
    with rig() as queue:
        writer, reader = queue.writer(), queue.reader()
        reader.fileno()
        writer.put(b"x")
        writer._drop(0)
        queue.leave(reader)
        assert queue.lines(_layout.READER_STAY) == queue.gate(_layout.GATE_GATE) == 1
        for _ in range(9):
            writer.put_nowait(bytes(1000))


def test_being_overrun_after_a_drop_is_not_called_corrupt() -> None:
    with rig() as queue:
        writer, reader = queue.writer(), queue.reader()
        writer.put(content(0, 100))
        assert reader.get() == content(0, 100)
        writer.put(content(1, 100))
        writer._drop(0)
        writer.put_many([bytes(1000)] * 9)
        with pytest.raises(ReaderDropped):
            reader.get()


def test_sequence_numbers_continue_through_takeovers() -> None:
    with rig() as queue:
        reader = queue.reader()
        for sequence in range(20):
            writer = queue.writer()
            if sequence % 3 == 0:
                claim = writer.try_acquire_write(300)
                assert claim is not None
                claim.data[:] = bytes(300)
                if sequence % 2:
                    claim.abort()
                else:
                    writer._shut(None)  # killed in the middle of a slot: nothing of it was published
                    claim.abort()
                    writer = queue.writer()
            writer.put(content(sequence, 777))
            slot = reader.try_acquire_read()
            assert slot is not None and slot.sequence == sequence and slot.data == content(sequence, 777)
            slot.release()


@pytest.mark.parametrize("stores", range(4))
def test_a_writer_killed_inside_publish(stores: int) -> None:
    """The journal's two words and W are stored one by one; a kill after any of them must leave a consistent pair."""
    with rig() as queue:
        writer, reader = queue.writer(), queue.reader()
        for sequence in range(3):
            writer.put(content(sequence, 10))
        core = writer._core
        assert core is not None
        journal = _layout.CONTROL_JOURNAL + (core._next_entry - core._at.journal) * 8
        end = writer._cursor + _layout.stride(10)
        core._write(writer._cursor, 3, 10, 0, 10, (content(3, 10),))
        steps = [(journal, end), (journal + 8, 4), (_layout.CONTROL_PUBLISHED, end)]
        for offset, value in steps[:stores]:
            queue.set_control(offset, value)
        writer._shut(None)
        successor = queue.writer()
        successor.fileno()
        assert successor._sequence == (4 if stores == 3 else 3)
        successor.put(content(successor._sequence, 10))
        assert reader.get_many(99) == [content(i, 10) for i in range(successor._sequence)]


def test_a_writer_that_never_was_takes_over_from_zero() -> None:
    with rig() as queue:
        writer = queue.writer()
        writer.fileno()
        assert (writer._cursor, writer._sequence) == (0, 0)


def test_bells_ring_once_a_park() -> None:
    with rig() as queue:
        writer, reader = queue.writer(), queue.reader()
        writer.put(b"a")
        reader.get()
        assert reader.arm()
        for _ in range(3):
            writer.put(b"b")
        assert os.read(reader.fileno(), 8) == b"\0"
        assert queue.gate(_layout.GATE_RANG_AT) > 0
        assert not reader.arm()
        reader.get_many(9)
        assert reader.arm()
        writer.put(b"c")
        assert os.read(reader.fileno(), 8) == b"\0"


def test_the_last_rank_to_cross_rings_the_writer() -> None:
    with rig(readers=2) as queue:
        writer, first, second = queue.writer(), queue.reader(0), queue.reader(1)
        writer.put_many([bytes(1000)] * 3)
        with pytest.raises(Full):
            writer.put_nowait(bytes(2000))
        with pytest.raises(TimeoutError):
            writer.put(bytes(2000), timeout=0)
        assert writer.arm()
        first.get_many(3)
        second.get()
        assert second._counters()["rings"] == first._counters()["rings"] == 0
        second.get()
        assert second._counters()["rings"] == 1
        assert os.read(writer.fileno(), 8) == b"\0"
        assert writer._ready() and not writer.arm()
        second.get()
        assert second._counters()["rings"] == 1
        writer.put_nowait(bytes(2000))


def test_a_reader_that_leaves_frees_the_room_it_held() -> None:
    with rig(readers=2) as queue:
        writer, first, second = queue.writer(), queue.reader(0), queue.reader(1)
        second.fileno()
        writer.put_many([bytes(1000)] * 3)
        first.get_many(3)
        with pytest.raises(TimeoutError):
            writer.put(bytes(2000), timeout=0)
        assert writer.arm()
        queue.leave(second)
        assert not writer.arm()
        writer.put_nowait(bytes(2000))


def test_the_writer_is_not_a_reader_and_says_what_it_is() -> None:
    with rig() as queue:
        writer = queue.writer()
        queue.set_control(_layout.CONTROL_SHUTDOWN, 1)
        with pytest.raises(QueueClosed, match="shut down"):
            writer.put(b"x")
        assert not isinstance(writer, CorruptSlot)
