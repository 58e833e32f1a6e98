"""Messages through the ring: contents, order, wraps, gathers, batches, and arguments that make no sense."""

from __future__ import annotations

import array
import math
from typing import Any

import pytest
from fallback_rig import PAGE, content, rig

from aiospin import _layout
from aiospin._errors import Empty, Full, QueueClosed

LARGEST = PAGE - _layout.SLOT_HEADER_BYTES


@pytest.mark.parametrize("checksum", [False, True])
def test_contents_follow_the_sequence_through_many_wraps(checksum: bool) -> None:
    sizes = [0, 1, 63, 64, 65, 500, 1000, 2047, 2048, 2100, 3000, LARGEST - 1, LARGEST, 7]
    with rig(readers=2, checksum=checksum) as queue:
        writer, readers = queue.writer(), (queue.reader(0), queue.reader(1))
        sequence = 0
        for _ in range(12):
            for size in sizes:
                writer.put(content(sequence, size))
                assert readers[0].get() == content(sequence, size)
                slot = readers[1].try_acquire_read()
                assert slot is not None and slot.sequence == sequence and bytes(slot.data) == content(sequence, size)
                slot.release()
                sequence += 1
        assert writer._sequence == sequence
        assert queue.released(0) == queue.released(1) == queue.published() == writer._cursor
        assert readers[0]._cursor == writer._cursor


def test_a_slot_that_crosses_the_end_is_one_run() -> None:
    with rig() as queue:
        writer, reader = queue.writer(), queue.reader()
        writer.put(bytes(2500))
        reader.get()
        payload = content(3, 3000)
        with writer.acquire_write(3000) as slot:
            slot.data[:] = payload
        with reader.acquire_read() as read:
            assert read.data == payload and len(read) == 3000


def test_a_full_ring_refuses_and_an_empty_one_too() -> None:
    with rig() as queue:
        writer, reader = queue.writer(), queue.reader()
        with pytest.raises(Empty):
            reader.get_nowait()
        assert reader.try_acquire_read() is None
        writer.put_nowait(bytes(LARGEST))
        with pytest.raises(Full):
            writer.put_nowait(b"")
        assert writer.try_acquire_write(0) is None
        with pytest.raises(TimeoutError, match="writer: no room within 0"):
            writer.put(b"x", timeout=0)
        assert reader.get_nowait() == bytes(LARGEST)
        writer.put_nowait(b"x")
        assert reader.get() == b"x"
        with pytest.raises(TimeoutError, match="reader 0: no message within 0"):
            reader.get(timeout=0)


def test_no_reader_means_no_limit() -> None:
    with rig(readers=0) as queue:
        writer = queue.writer()
        for sequence in range(50):
            writer.put(content(sequence, 1000))
        writer.put(bytes(10 * PAGE), timeout=0)
        assert writer._sequence == 51


def test_many_buffers_make_one_message() -> None:
    with rig() as queue:
        writer, reader = queue.writer(), queue.reader()
        writer.put(b"head", bytearray(b"body"), memoryview(b"tail"), array.array("H", [0x3130]), b"")
        assert reader.get() == b"headbodytail01"
        writer.put()
        assert reader.get() == b""
        writer.put(memoryview(b"abcdefgh").cast("B", (2, 4)), memoryview(array.array("d")))
        assert reader.get() == b"abcdefgh"


def test_what_is_not_flat_bytes_is_refused_by_name() -> None:
    with rig() as queue:
        writer, reader = queue.writer(), queue.reader()
        calls: list[Any] = [writer.put, writer.put_nowait, writer.aput, lambda x: writer.put_many([b"a", x])]
        for call in calls:
            with pytest.raises(TypeError, match="str"):
                call("text")
            with pytest.raises(TypeError, match="int"):
                call(7)
            with pytest.raises(BufferError, match="contiguous"):
                call(memoryview(b"abcdef")[::2])
        for one in (b"ab", "ab", bytearray(2)):
            with pytest.raises(TypeError, match="iterable of payloads"):
                writer.put_many(one)
        assert reader.try_acquire_read() is None and writer._sequence == 0


def test_bytes_are_owned_when_put_returns() -> None:
    with rig() as queue:
        writer, reader = queue.writer(), queue.reader()
        payload = bytearray(b"before")
        writer.put(payload)
        payload[:] = b"after."
        payload.clear()
        assert reader.get() == b"before"


def test_a_batch_is_published_with_one_store_and_one_ring() -> None:
    with rig() as queue:
        writer, reader = queue.writer(), queue.reader()
        writer.put(b"")
        reader.get()
        assert reader.arm()
        before = writer._counters()["rings"]
        writer.put_many(content(i, 10) for i in range(20))
        assert writer._counters()["rings"] == before + 1
        assert reader.get_many(5) == [content(i, 10) for i in range(5)]
        assert reader.get_many(1000) == [content(i, 10) for i in range(5, 20)]
        assert queue.released() == queue.published()
        writer.put_many([])
        assert writer._sequence == 21


def test_a_batch_larger_than_the_room_puts_its_first_ones() -> None:
    with rig() as queue:
        writer, reader = queue.writer(), queue.reader()
        with pytest.raises(TimeoutError):
            writer.put_many([content(i, 1000) for i in range(10)], timeout=0)
        assert reader.get_many(10) == [content(i, 1000) for i in range(3)]
        writer.put(content(3, 1000))
        assert reader.get() == content(3, 1000)


def test_codecs() -> None:
    with rig() as queue:
        writer, reader = queue.writer(encode=lambda text: text.encode()), queue.reader(decode=bytes.decode)
        writer.put("one")
        writer.put_many(["two", "three"])
        assert reader.get() == "one"
        assert reader.get_many(9) == ["two", "three"]
        with pytest.raises(TypeError, match="one object"):
            writer.put("a", "b")


def test_codecs_apply_to_the_first_calls_too() -> None:
    with rig() as queue:
        queue.writer(encode=str.encode).put("text")
        assert queue.reader(decode=bytes.decode).get() == "text"


def test_what_its_codec_refuses_costs_no_other_message() -> None:
    with rig() as queue:
        writer, reader = queue.writer(), queue.reader(decode=int)
        writer.put_many([b"1", b"2", b"x", b"4"])
        assert reader.get_many(9) == [1, 2]
        with pytest.raises(ValueError, match="x"):
            reader.get_many(9)
        assert reader.get_many(9) == [4]
        assert queue.released() == queue.published() and reader._counters()["leases"] == 0


@pytest.mark.parametrize("bad", [-1, -0.001, math.nan, -math.inf])
def test_impossible_timeouts(bad: float) -> None:
    with rig() as queue:
        writer, reader = queue.writer(), queue.reader()
        calls: list[Any] = [reader.get, reader.aget, reader.acquire_read]
        calls += [lambda timeout: reader.get_many(1, timeout), lambda timeout: reader.aget_many(1, timeout)]
        calls += [lambda timeout: writer.put(b"", timeout=timeout), lambda timeout: writer.aput(b"", timeout=timeout)]
        calls += [lambda timeout: writer.acquire_write(1, timeout), lambda timeout: writer.put_many([], timeout)]
        for call in calls:
            with pytest.raises(ValueError, match=r"timeout.*" + str(bad)):
                call(timeout=bad)
            with pytest.raises(TypeError, match=r"timeout.*'1'"):
                call(timeout="1")


def test_impossible_counts() -> None:
    with rig() as queue:
        writer, reader = queue.writer(), queue.reader()
        with pytest.raises(ValueError, match="n is at least 1, not 0"):
            reader.get_many(0)
        with pytest.raises(TypeError, match=r"n is an integer, not 1\.5"):
            reader.aget_many(1.5)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="nbytes is at least 0, not -1"):
            writer.acquire_write(-1)
        with pytest.raises(TypeError, match="nbytes is an integer, not 'x'"):
            writer.try_acquire_write("x")  # type: ignore[arg-type]


def test_closed_stream_drains_then_ends() -> None:
    with rig() as queue:
        writer, reader = queue.writer(), queue.reader()
        writer.put(b"last")
        assert not reader._ready()  # nothing is known before the role is claimed
        reader.fileno()
        queue.set_control(_layout.CONTROL_WRITER_CLOSED, 1)
        assert reader._ready()
        assert reader.get() == b"last"
        for call in (reader.get, reader.get_nowait, reader.try_acquire_read):
            with pytest.raises(QueueClosed):
                call()
        queue.writer().put(b"more")  # a later writer goes on
        assert reader.get() == b"more"


def test_shutdown_drains_and_shutdown_at_once_does_not() -> None:
    with rig() as queue:
        writer, reader = queue.writer(), queue.reader()
        writer.put_many([b"one", b"two"])
        slot = reader.try_acquire_read()
        assert slot is not None
        queue.set_control(_layout.CONTROL_SHUTDOWN, 1)
        with pytest.raises(QueueClosed):
            writer.put(b"three")
        with pytest.raises(QueueClosed):
            writer.put_nowait(b"three")
        with pytest.raises(QueueClosed):
            writer.try_acquire_write(1)
        assert writer._ready() and reader._ready()
        queue.set_control(_layout.CONTROL_SHUTDOWN, 2)
        with pytest.raises(QueueClosed):
            reader.get()
        assert slot.data == b"one"
        slot.release()


def test_use_after_close_says_so() -> None:
    with rig() as queue:
        writer, reader = queue.writer(), queue.reader()
        writer.put(b"x")
        reader.get()
        writer._shut(None)
        writer._shut(ValueError("too late"))
        reader._shut(ValueError("custom"))
        with pytest.raises(QueueClosed, match="writer is closed"):
            writer.put(b"y")
        with pytest.raises(QueueClosed):
            writer.put_nowait(b"y")
        for _ in range(2):
            with pytest.raises(ValueError, match="custom"):
                reader.get()
        with pytest.raises(ValueError, match="custom"):
            reader.fileno()
        assert reader._ready() and writer._ready()
        never = queue.reader()
        never._shut(None)
        with pytest.raises(QueueClosed):
            never.get()


def test_a_failure_is_raised_once_and_after_what_is_there() -> None:
    with rig() as queue:
        writer, reader = queue.writer(), queue.reader()
        writer.put(b"x")
        assert reader.get() == b"x"
        writer.put(b"y")
        reader._fail(ValueError("peer"))
        assert reader._ready()
        assert reader.get() == b"y"
        with pytest.raises(ValueError, match="peer"):
            reader.get()
        assert reader.try_acquire_read() is None
        writer.put(bytes(LARGEST - 128))
        writer._fail(ValueError("peer"))
        with pytest.raises(ValueError, match="peer"):
            writer.put_nowait(bytes(LARGEST))
        with pytest.raises(Full):
            writer.put_nowait(bytes(LARGEST))
