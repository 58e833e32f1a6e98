"""Messages larger than the ring: whole or not at all, whoever gives up in the middle."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import Any

import pytest
from fallback_rig import PAGE, Rig, RigReader, RigWriter, content, rig

from aiospin import _layout
from aiospin._errors import Empty, FragmentLost, Full, QueueClosed, WriterBusy
from aiospin._fallback.batch import Batch

LARGE = 5 * PAGE + 123
FRAGMENTS_AT_ONCE = 4


def in_thread(call: Any) -> threading.Thread:
    thread = threading.Thread(target=call)
    thread.start()
    return thread


def give_up(writer: RigWriter, sequence: int) -> None:
    """Put the first fragments of a large message, then run out of time."""
    with pytest.raises(TimeoutError):
        writer.put(content(sequence, LARGE), timeout=0)


def stepwise(writer: RigWriter, messages: list[bytes]) -> Callable[[], bool]:
    """Put the messages a ring full at a time; each call says whether that was all."""
    writer.fileno()
    core, batch = writer._core, Batch([(message,) for message in messages])
    assert core is not None
    return lambda: core.push(batch)


@pytest.mark.parametrize("checksum", [False, True])
@pytest.mark.parametrize("size", [PAGE - 63, PAGE, 2 * PAGE, LARGE])
def test_a_large_message_passes_through(size: int, checksum: bool) -> None:
    with rig(readers=2, checksum=checksum) as queue:
        writer, first, second = queue.writer(), queue.reader(0), queue.reader(1)
        expected = [content(0, 10), content(1, size), content(2, 20), content(3, size)]
        got: list[list[bytes]] = [[], []]

        def read(rank: int, reader: RigReader) -> None:
            got[rank] = [reader.get() for _ in expected]

        threads = [in_thread(lambda: read(0, first)), in_thread(lambda: read(1, second))]
        writer.put_many(expected[:2])
        writer.put(expected[2])
        writer.put(expected[3][:100], expected[3][100:])
        for thread in threads:
            thread.join()
        assert got == [expected, expected]
        assert queue.released(0) == queue.released(1) == queue.published()
        assert writer._sequence == 4


def test_the_reader_gets_an_ordinary_slot_with_private_bytes() -> None:
    with rig() as queue:
        writer, reader = queue.writer(), queue.reader()
        thread = in_thread(lambda: writer.put(content(0, LARGE)))
        with reader.acquire_read(timeout=60) as slot:
            thread.join()
            assert (slot.sequence, len(slot)) == (0, LARGE) and slot.data == content(0, LARGE)
            view = slot.data
            with pytest.raises(BufferError):
                slot.release()
            assert queue.released() < queue.published()  # its last fragment is what a death would tell of
            del view
        assert queue.released() == queue.published()
        assert slot.released


def test_an_untouched_large_slot_goes_back() -> None:
    with rig() as queue:
        writer, reader = queue.writer(), queue.reader()
        thread = in_thread(lambda: writer.put(content(0, LARGE)))
        with reader.acquire_read(timeout=60):
            thread.join()
        thread = in_thread(lambda: writer.put(content(1, LARGE)))
        slot = None
        while slot is None:
            slot = reader.try_acquire_read()
        thread.join()
        del slot
        gc.collect()
        assert reader.get() == content(1, LARGE)


def test_a_large_claim_is_published_by_leaving_the_block() -> None:
    with rig() as queue:
        writer, reader = queue.writer(), queue.reader()
        got: list[bytes] = []
        thread = in_thread(lambda: got.append(reader.get()))
        with writer.acquire_write(LARGE) as slot:
            slot.data[:] = content(0, LARGE)
            slot.truncate(LARGE - 1)
        thread.join()
        assert got == [content(0, LARGE)[:-1]]
        with writer.acquire_write(LARGE) as slot:
            slot.data[:5] = b"small"
            slot.truncate(5)
        assert reader.get() == b"small"
        with pytest.raises(KeyError):
            with writer.acquire_write(LARGE):
                raise KeyError
        assert reader.try_acquire_read() is None and writer._sequence == 2


def test_giving_up_in_the_middle_shifts_nothing() -> None:
    with rig() as queue:
        writer, reader = queue.writer(), queue.reader()
        writer.put(b"before")
        reader.get()
        give_up(writer, 1)
        assert reader.try_acquire_read() is None  # takes the fragments, finds no end
        writer.put(b"after")
        slot = reader.try_acquire_read()
        assert slot is not None and slot.sequence == 1 and slot.data == b"after"
        slot.release()
        give_up(writer, 2)
        thread = in_thread(lambda: writer.put(content(2, LARGE)))
        assert reader.get() == content(2, LARGE)
        thread.join()


def test_put_nowait_never_publishes_a_part() -> None:
    with rig() as queue:
        writer, reader = queue.writer(), queue.reader()
        with pytest.raises(ValueError, match=str(LARGE)):
            writer.put_nowait(content(0, LARGE))
        assert queue.published() == 0
        with pytest.raises(Empty):
            reader.get_nowait()


def test_nobody_cuts_in_between_two_fragments() -> None:
    with rig() as queue:
        writer, reader = queue.writer(), queue.reader()
        reader.try_acquire_read()
        parked = threading.Event()
        writer.when_parked = parked.set
        thread = in_thread(lambda: writer.put(content(0, LARGE)))
        parked.wait()
        with pytest.raises(WriterBusy):
            writer.put(b"cut")
        with pytest.raises(Full):
            writer.put_nowait(b"cut")
        with pytest.raises(WriterBusy):
            writer.try_acquire_write(1)
        assert reader.get() == content(0, LARGE)
        thread.join()


def test_a_successor_writer_starts_the_message_again() -> None:
    with rig() as queue:
        writer, reader = queue.writer(), queue.reader()
        writer.put(b"zero")
        assert reader.get() == b"zero"
        give_up(writer, 1)
        assert reader.try_acquire_read() is None
        successor = queue.writer()
        give_up(successor, 1)
        assert successor._sequence == 1
        assert reader.try_acquire_read() is None
        third = queue.writer()
        third.put(b"one")
        slot = reader.try_acquire_read()
        assert slot is not None and slot.sequence == 1 and slot.data == b"one"
        slot.release()


def take_fragments(queue: Rig) -> None:
    """A reader takes the first fragments of message 0 and is gone."""
    give_up(queue.writer(), 0)
    assert queue.reader().try_acquire_read() is None
    assert queue.released() == queue.published() > 0


def test_a_successor_reader_is_told_once_what_it_lost() -> None:
    with rig() as queue:
        writer, first = queue.writer(), queue.reader()
        push = stepwise(writer, [content(0, 2 * PAGE), b"next"])
        assert not push()
        assert first.try_acquire_read() is None
        first._shut(None)
        successor = queue.reader()
        assert not push()
        with pytest.raises(FragmentLost, match="message 0"):
            successor.get()
        assert successor.try_acquire_read() is None
        assert push()
        assert successor.get() == b"next"
        assert queue.released() == queue.published()


def test_a_successor_reader_that_finds_a_new_beginning_lost_nothing_but_what_was_given_up() -> None:
    with rig() as queue:
        take_fragments(queue)
        queue.writer().put(b"again")
        assert queue.reader().get() == b"again"


def test_a_reader_that_joins_in_the_middle_begins_with_the_next_message() -> None:
    with rig(readers=2) as queue:
        writer, reader, joiner = queue.writer(), queue.reader(0), queue.reader(1)
        joiner.fileno()
        queue.leave(joiner)
        push = stepwise(writer, [content(0, 2 * PAGE), b"next"])
        assert not push()
        joiner = queue.reader(1)
        assert reader.try_acquire_read() is None
        assert not push()
        assert reader.try_acquire_read() is joiner.try_acquire_read() is None
        assert push()
        assert reader.get() == content(0, 2 * PAGE)
        assert joiner.get() == reader.get() == b"next"


def test_a_shutdown_in_the_middle_ends_both_sides() -> None:
    with rig() as queue:
        writer, reader = queue.writer(), queue.reader()
        parked = threading.Event()
        errors: list[BaseException] = []

        def put() -> None:
            try:
                writer.put(content(0, LARGE))
            except QueueClosed as error:
                errors.append(error)

        writer.when_parked = parked.set
        thread = in_thread(put)
        parked.wait()
        queue.set_control(_layout.CONTROL_SHUTDOWN, 1)
        with pytest.raises(QueueClosed):
            reader.get()
        thread.join()
        assert len(errors) == 1


def test_fragments_are_a_quarter_of_the_ring() -> None:
    with rig() as queue:
        give_up(queue.writer(), 0)
        assert queue.published() == PAGE
        assert queue.control(_layout.CONTROL_JOURNAL) in (0, PAGE)
        quarter = PAGE // FRAGMENTS_AT_ONCE
        for index in range(FRAGMENTS_AT_ONCE):
            header = _layout.SLOT_HEADER.unpack_from(queue.mapping.ring, index * quarter)
            assert header[:4] == (0, LARGE, index * (quarter - 64), quarter - 64)
