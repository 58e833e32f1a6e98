"""One process after another in the same role: detach, close, drop, takeover, and what the next one finds."""

from __future__ import annotations

import gc
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from ends import RING, asleep, content, ends, fill, until
from forked import open_descriptors
from programs import Program

import aiospin

pytestmark = pytest.mark.usefixtures("leaves_nothing")


def test_a_role_has_one_living_holder() -> None:
    program = """
        for handle in arguments:
            end = aiospin.attach(handle)
            try:
                end.__enter__()
            except aiospin.RoleTaken as error:
                say([error.role_name, error.pid, str(error)])
            end.close()
    """
    with ends(readers=2) as (_, writer, readers):
        with writer, readers[1], Program(program, [str(writer.handle), str(readers[1].handle)]) as child:
            for name in ("writer", "reader 1"):
                role, pid, text = child.hear()
                assert (role, pid) == (name, os.getpid())
                assert name in text and str(os.getpid()) in text
            child.finish()


def test_a_role_that_could_not_be_taken_can_be_taken_later() -> None:
    with ends() as (queue, writer, (reader,)):
        with reader:
            late = queue.reader(0)
            for _ in range(3):
                with pytest.raises(aiospin.RoleTaken):
                    late.get(timeout=0)
        writer.put(b"x")
        with late:
            writer.put(b"y")
            assert late.get(timeout=30) == b"y" or late.get() == b"y"


def test_detach_keeps_the_place_and_marks_what_was_taken() -> None:
    with ends() as (queue, writer, (first,)):
        writer.put_many([content(sequence, 100) for sequence in range(6)])
        assert first.get() == content(0, 100)
        released = first.acquire_read()
        with released as slot:
            assert slot.sequence == 1
        kept = first.try_acquire_read()
        assert kept is not None and kept.sequence == 2
        seen = [first.try_acquire_read() for _ in range(2)]
        seen[1].release()  # type: ignore[union-attr]
        del seen[1]
        first.detach()
        first.detach()
        with pytest.raises(aiospin.RoleTaken):  # until its last lease is gone
            queue.reader(0).get(timeout=0)
        del kept, seen
        gc.collect()
        with queue.reader(0) as second:
            for sequence, redelivered in ((2, True), (3, True), (4, True), (5, False)):
                with second.acquire_read() as slot:
                    assert (slot.sequence, slot.redelivered) == (sequence, redelivered)
                    assert bytes(slot.data) == content(sequence, 100)


def test_a_detached_reader_still_holds_the_writer() -> None:
    with ends() as (queue, writer, (first,)):
        assert first.try_acquire_read() is None
        first.detach()
        with pytest.raises(aiospin.QueueClosed):
            first.get_nowait()
        count = fill(writer)
        with ThreadPoolExecutor(1) as pool:
            putting = pool.submit(writer.put, content(count, 1000))
            asleep(writer)
            with queue.reader(0) as second:
                for sequence in range(count + 1):
                    assert second.get() == content(sequence, 1000)
                putting.result()


def test_who_closes_is_not_waited_for_and_a_late_joiner_starts_at_what_is_published() -> None:
    with ends(readers=2) as (queue, writer, (leaver, stayer)):
        writer.put(b"0")
        assert leaver.get() == stayer.get() == b"0"
        leaver.close()
        assert queue.statistics().lag[0] is None
        for sequence in range(200):  # more than a ring
            writer.put(content(sequence, 1000))
            assert stayer.get() == content(sequence, 1000)
        with queue.reader(0) as joiner:
            assert joiner.try_acquire_read() is None  # asks to join
            writer.put(b"first after the join")
            with joiner.acquire_read() as slot:
                assert bytes(slot.data) == b"first after the join"
                assert not slot.redelivered
            count = fill(writer)
            assert len(stayer.get_many(1000)) == count + 1
            with pytest.raises(aiospin.Full):
                writer.put_nowait(bytes(1000))  # the joiner gates
            assert len(joiner.get_many(1000)) == count


def test_a_joiner_that_waits_is_woken_by_its_first_message() -> None:
    with ends() as (queue, writer, (leaver,)), ThreadPoolExecutor(1) as pool:
        with leaver:
            pass
        writer.put(b"missed")
        with queue.reader(0) as joiner:
            getting = pool.submit(joiner.get)
            asleep(joiner)
            writer.put(b"met")
            assert getting.result() == b"met"


def test_readers_come_and_go_while_messages_flow() -> None:
    """Each stay sees a gapless run of the stream, which ends where the reader left."""
    with ends(readers=2) as (queue, writer, (coming, staying)), ThreadPoolExecutor(2) as pool:
        stop: list[int] = []

        def write() -> int:
            sequence = 0
            while not stop:
                writer.put(b"%d" % sequence, content(sequence, sequence % 300))
                sequence += 1
            return sequence

        writing, following = pool.submit(write), pool.submit(list, staying)
        coming.close()
        last = -1
        for stay in range(60):
            with queue.reader(0) as reader:
                run = []
                for _ in range(5):
                    with reader.acquire_read() as slot:
                        run.append(slot.sequence)
                        assert bytes(slot.data) == b"%d" % run[-1] + content(run[-1], run[-1] % 300)
                assert run == list(range(run[0], run[0] + 5)), f"stay {stay}"
                assert run[0] > last
                last = run[-1]
        stop.append(1)
        total = writing.result()
        writer.close()
        assert following.result() == [b"%d" % sequence + content(sequence, sequence % 300) for sequence in range(total)]


def test_a_dropped_reader_is_told_and_may_join_anew() -> None:
    with ends(readers=2) as (queue, writer, (dropped, other)):
        writer.put_many([b"0", b"1"])
        held = dropped.try_acquire_read()
        assert held is not None
        with pytest.raises(ValueError, match=rf"reader 0 is alive \(pid {os.getpid()}\)"):
            writer.drop_reader(0)
        writer.drop_reader(0, force=True)
        assert queue.statistics().lag[0] is None
        for call in (dropped.get_nowait, dropped.get, dropped.try_acquire_read):
            with pytest.raises(aiospin.ReaderDropped, match="reader 0"):
                call()
        held.release()
        dropped.close()
        assert other.get_many(10) == [b"0", b"1"]
        fill(writer)
        with queue.reader(0) as again:
            assert again.try_acquire_read() is None
            other.get_many(1000)
            writer.put(b"anew")
            assert again.get() == b"anew"


def test_dropping_wakes_who_waits() -> None:
    with ends(readers=2) as (_, writer, (dropped, other)), ThreadPoolExecutor(2) as pool:
        getting = pool.submit(dropped.get)
        asleep(dropped)
        writer.drop_reader(0, force=True)
        with pytest.raises(aiospin.ReaderDropped):
            getting.result()
        writer.put(b"x")
        assert other.get() == b"x"


def test_dropping_frees_the_room_for_a_writer_that_waits() -> None:
    """The drop comes from the thread that has the writer, between two attempts with a time-out."""
    with ends(readers=2) as (_, writer, (stuck, other)):
        assert stuck.try_acquire_read() is None
        count = fill(writer)
        assert len(other.get_many(1000)) == count
        with pytest.raises(TimeoutError):
            writer.put(bytes(1000), timeout=0.01)
        writer.drop_reader(0, force=True)
        writer.put(bytes(1000))
        assert other.get() == bytes(1000)


@pytest.mark.parametrize("rank", [2, -1, "0", None, 0.0, True])
def test_only_ranks_can_be_dropped(rank: Any) -> None:
    with ends(readers=2) as (_, writer, _readers), writer:
        with pytest.raises((ValueError, TypeError), match="rank") as caught:
            writer.drop_reader(rank)
        assert repr(rank) in str(caught.value)


def test_a_successor_writer_goes_on_with_the_numbers() -> None:
    with ends() as (queue, writer, (reader,)):
        for generation in range(5):
            with queue.writer() as successor:
                for number in range(10):
                    successor.put(b"%d" % (generation * 10 + number))
                claim = successor.try_acquire_write(5)
                claim.abort()  # type: ignore[union-attr]
                successor.detach()
        for sequence in range(50):
            with reader.acquire_read() as slot:
                assert (slot.sequence, bytes(slot.data)) == (sequence, b"%d" % sequence)
        assert not writer.closed


def test_a_writer_reopens_a_stream_that_its_predecessor_ended() -> None:
    with ends() as (queue, writer, (reader,)):
        writer.put(b"0")
        writer.close()
        assert reader.get() == b"0"
        with pytest.raises(aiospin.QueueClosed):
            reader.get()
        with queue.writer() as successor:
            successor.put(b"1")
            with reader.acquire_read() as slot:
                assert (slot.sequence, bytes(slot.data)) == (1, b"1")


def test_a_thousand_attach_and_detach_cycles_leave_nothing() -> None:
    with ends(readers=2) as (queue, writer, (reader, other)):
        handle = str(reader.handle)
        writer.put(b"0")
        assert other.get() == b"0"
        descriptors = open_descriptors()
        for sequence in range(1000):
            with aiospin.attach(handle) as end:
                with end.acquire_read() as slot:  # type: ignore[union-attr]
                    assert (slot.sequence, slot.redelivered) == (sequence, False)
                writer.put(b"%d" % (sequence + 1))
                end.detach()
            other.get()
        assert open_descriptors() == descriptors
        assert queue.statistics().lag[0] == 128


def test_hundreds_of_queues_leave_nothing() -> None:
    descriptors = open_descriptors()
    for sequence in range(300):
        with aiospin.Queue(capacity=RING) as queue, queue.writer() as writer, queue.reader(0) as reader:
            writer.put(b"%d" % sequence)
            assert reader.get() == b"%d" % sequence
    del queue, writer, reader
    gc.collect()
    assert open_descriptors() == descriptors


def test_ends_drain_after_the_owner_has_closed_the_queue() -> None:
    queue: aiospin.Queue[bytes] = aiospin.Queue(readers=2, capacity=RING)
    writer, first, second = queue.writer(), queue.reader(0), queue.reader(1)
    writer.put_many([b"0", b"1"])
    queue.close()
    queue.close()
    for call in (queue.reader, queue.writer, queue.statistics, queue.shutdown, lambda: queue.capacity):
        with pytest.raises(aiospin.QueueClosed):
            call()  # type: ignore[operator]
    with pytest.raises(aiospin.QueueClosed):
        writer.put(b"2")
    assert list(first) == [b"0", b"1"]
    assert second.get_many(10) == [b"0", b"1"]
    for end in (writer, first, second):
        end.close()
    assert "closed" in repr(queue) and "closed" in repr(writer)
    until(lambda: writer.closed)
