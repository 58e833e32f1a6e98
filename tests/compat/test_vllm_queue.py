"""MessageQueue: each object reaches each reader once and in order, of any size; what is refused changes nothing."""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from compat_rig import BEGIN, FITS, attached, fill, held_back, only_writer, packed, reading, sides, slept, writing
from ends import RING, content, size_of
from programs import OTHER

import aiospin
from aiospin.compat.vllm import MessageQueue, WrongRole

pytestmark = pytest.mark.usefixtures("leaves_nothing")

LARGE = 5 * RING

TAKES_ALL = (
    BEGIN
    + """
    queue = opened()
    for sequence in range(arguments["messages"]):
        number, payload = queue.dequeue()
        assert (number, payload) == (sequence, content(sequence, len(payload))), sequence
    say(sequence)
    hear()
    try:
        say(repr(queue.dequeue()))
    except aiospin.QueueClosed:
        say("closed")
    queue.shutdown()
"""
)


def message(sequence: int) -> tuple[int, bytes]:
    return sequence, content(sequence, size_of(sequence, 2 * RING if sequence % 20 == 7 else 2000))


@pytest.mark.parametrize("backend", [aiospin.backend, OTHER], ids=["same_backend", "other_backend"])
@pytest.mark.parametrize("readers", [1, 4])
def test_every_reader_gets_everything_once_and_in_order(readers: int, backend: str) -> None:
    count = 200
    with only_writer(range(10, 10 + readers)) as queue, contextlib.ExitStack() as stack:
        programs = [
            stack.enter_context(reading(queue, 10 + place, count, TAKES_ALL, backend=backend))
            for place in range(readers)
        ]
        queue.wait_until_ready()
        for sequence in range(count):
            queue.enqueue(message(sequence))
        for program in programs:
            assert program.hear() == count - 1
        queue.shutdown()
        for program in programs:
            program.say()
            assert program.hear() == "closed"
            program.finish()


async def test_all_ways_to_send_and_to_receive_mix() -> None:
    with sides((3, 1)) as (queue, readers):
        for sequence in range(30):
            if sequence % 3 == 0:
                queue.enqueue(message(sequence)[1][:900])
            elif sequence % 3 == 1:
                await queue.aenqueue(message(sequence)[1][:900])
            else:
                sent = message(sequence)[1][:900]
                assert queue.broadcast_object(sent) is sent
            for place, reader in enumerate(readers):
                if (sequence + place) % 4 == 0:
                    got = reader.dequeue()
                elif (sequence + place) % 4 == 1:
                    got = await reader.adequeue()
                elif (sequence + place) % 4 == 2:
                    got = reader.broadcast_object("a reader's is not sent")
                else:
                    got = await reader.adequeue(timeout=0, indefinite=True)
                assert got == message(sequence)[1][:900]


@pytest.mark.parametrize("size", [20_000, LARGE], ids=["beyond_the_chunk", "beyond_the_ring"])
def test_objects_may_be_larger_than_the_chunk_and_the_ring(size: int) -> None:
    with ThreadPoolExecutor(1) as pool, sides(max_chunk_bytes=10_000) as (queue, [reader]):
        for sequence in range(3):
            sending = pool.submit(queue.enqueue, {"head": sequence, "body": content(sequence, size)})
            assert reader.dequeue() == {"head": sequence, "body": content(sequence, size)}
            sending.result()


async def test_coroutines_send_what_is_larger_than_the_ring() -> None:
    with ThreadPoolExecutor(1) as pool, sides() as (queue, [reader]):
        receiving = pool.submit(reader.dequeue)
        await queue.aenqueue(content(1, LARGE))
        assert receiving.result() == content(1, LARGE)
        sending = pool.submit(queue.enqueue, content(2, LARGE))
        assert await reader.adequeue() == content(2, LARGE)
        sending.result()


def test_without_readers_nothing_is_kept() -> None:
    queue = MessageQueue(0, 0, capacity=RING)
    assert queue.export_handle().buffer_handle is None
    queue.wait_until_ready()
    for sequence in range(3 * FITS):
        queue.enqueue(content(sequence, 1000), timeout=0)
    queue.enqueue(content(0, LARGE), timeout=0)
    queue.shutdown()


def test_a_process_reads_the_queues_of_several_writers() -> None:
    with contextlib.ExitStack() as stack:
        writers = [stack.enter_context(writing((7,), messages=place + 1)) for place in range(3)]
        readers = [attached(writer, 7) for writer in writers]
        for sequence in range(3):
            for reader in readers[sequence:]:
                assert reader.dequeue() == content(sequence, 500)
        for writer, reader in zip(writers, readers, strict=True):
            with pytest.raises(TimeoutError):
                reader.dequeue(timeout=0)
            writer.say()
            writer.finish()
            with pytest.raises(aiospin.QueueClosed):
                reader.dequeue()
            reader.shutdown()


# time-outs


@pytest.mark.parametrize("timeout", [0, -1, -1e-9, 1e-3])
def test_a_time_out_takes_nothing(timeout: float) -> None:
    with sides() as (queue, [reader]):
        for sequence in range(3):
            with pytest.raises(TimeoutError):
                reader.dequeue(timeout=timeout)
            with pytest.raises(TimeoutError), reader.acquire_read(timeout):
                raise AssertionError("nothing was sent")
            queue.enqueue(sequence)
            assert reader.dequeue(timeout=timeout) == sequence
        assert timeout > 0 or slept(reader) == 0, "it looked once, and did not wait"


@pytest.mark.parametrize("timeout", [0, -1, -1e-9, 1e-3])
def test_a_time_out_sends_nothing(timeout: float) -> None:
    with sides() as (queue, [reader]):
        count = fill(queue)
        assert count == FITS
        with pytest.raises(TimeoutError):
            queue.enqueue(bytes(1000), timeout=timeout)
        with pytest.raises(TimeoutError), queue.acquire_write(timeout):
            raise AssertionError("there is no room")
        assert timeout > 0 or slept(queue) == 0, "it looked once, and did not wait"
        held_back(reader, 0, count)
        queue.enqueue(b"there is room", timeout=timeout)
        assert reader.dequeue() == b"there is room"


@pytest.mark.parametrize("timeout", [0, -1])
async def test_coroutines_look_once_too(timeout: float) -> None:
    with sides() as (queue, [reader]):
        with pytest.raises(TimeoutError):
            await reader.adequeue(timeout=timeout)
        count = fill(queue)
        with pytest.raises(TimeoutError):
            await queue.aenqueue(bytes(1000), timeout=timeout)
        assert slept(reader) == slept(queue) == 0
        assert await reader.adequeue(timeout=timeout) == content(0, 1000)
        held_back(reader, 1, count)


@pytest.mark.parametrize("timeout", [0, 1e-3])
def test_half_a_message_is_never_left_behind(timeout: float) -> None:
    """One reader is in the middle of it, and the other has not begun, when it times out."""
    with ThreadPoolExecutor(1) as pool, sides((0, 1)) as (queue, [fast, slow]):
        receiving = pool.submit(fast.dequeue)
        for _ in range(3):
            with pytest.raises(TimeoutError):
                queue.enqueue(content(0, LARGE), timeout=timeout)
        with pytest.raises(TimeoutError):
            slow.dequeue(timeout=0)  # which also makes room, of the pieces
        queue.enqueue("whole")
        assert receiving.result() == slow.dequeue() == "whole"


async def test_half_a_message_of_a_coroutine_is_never_left_behind() -> None:
    with ThreadPoolExecutor(1) as pool, sides((0, 1)) as (queue, [fast, slow]):
        receiving = pool.submit(fast.dequeue)
        with pytest.raises(TimeoutError):
            await queue.aenqueue(content(0, LARGE), timeout=1e-3)
        with pytest.raises(TimeoutError):
            await slow.adequeue(timeout=0)  # which also makes room, of the pieces
        await queue.aenqueue("whole")
        assert receiving.result() == await slow.adequeue() == "whole"


# the wrong end


@pytest.mark.parametrize(
    "call",
    [
        lambda queue: queue.enqueue(1),
        lambda queue: queue.enqueue(1, timeout=0),
        lambda queue: queue.acquire_write().__enter__(),
    ],
)
def test_a_reader_cannot_send(call: Callable[[MessageQueue], Any]) -> None:
    with sides() as (queue, [reader]):
        with pytest.raises(AssertionError, match="this is a reader") as caught:
            call(reader)
        assert isinstance(caught.value, RuntimeError) and isinstance(caught.value, WrongRole)
        queue.enqueue("unharmed")
        assert reader.dequeue() == "unharmed"


@pytest.mark.parametrize(
    "call",
    [
        lambda queue: queue.dequeue(),
        lambda queue: queue.dequeue(timeout=0),
        lambda queue: queue.acquire_read().__enter__(),
    ],
)
def test_the_writer_cannot_receive(call: Callable[[MessageQueue], Any]) -> None:
    with sides() as (queue, [reader]):
        with pytest.raises(AssertionError, match="this is the writer") as caught:
            call(queue)
        assert isinstance(caught.value, RuntimeError) and isinstance(caught.value, WrongRole)
        queue.enqueue("unharmed")
        assert reader.dequeue() == "unharmed"


async def test_coroutines_know_their_end() -> None:
    with sides() as (queue, [reader]):
        with pytest.raises(WrongRole, match="this is the writer"):
            await queue.adequeue()
        with pytest.raises(WrongRole, match="this is a reader"):
            await reader.aenqueue(1)


# bytes


def test_a_chunk_is_written_and_read_in_place() -> None:
    with sides(max_chunk_bytes=5000) as (queue, [reader]):
        for sequence in range(40):  # several times around the ring
            with queue.acquire_write() as view:
                assert (view.nbytes, view.readonly, view.format) == (5000, False, "B")
                view[:] = content(sequence, 5000)
            with reader.acquire_read() as view:
                assert (view.nbytes, view.readonly) == (5000, True)
                assert view == content(sequence, 5000)
                with pytest.raises(TypeError):
                    view[0] = 1
        queue.enqueue(b"an object's")
        with reader.acquire_read(timeout=0) as view:
            assert b"an object's" in bytes(view)


def test_a_chunk_that_the_ring_cannot_hold_is_refused_where_it_is_asked_for() -> None:
    with sides(max_chunk_bytes=RING) as (queue, [reader]):
        with pytest.raises(ValueError, match=f"max_chunk_bytes must be at most {RING - 64} .*, got {RING}"):
            queue.acquire_write(timeout=0).__enter__()
        queue.enqueue("unharmed")
        assert reader.dequeue(timeout=0) == "unharmed"


def test_a_body_that_raises_sends_nothing() -> None:
    with sides(max_chunk_bytes=5000) as (queue, [reader]):
        for _ in range(FITS):
            with pytest.raises(KeyError, match="the body's"), queue.acquire_write() as view:
                view[:5] = b"hello"
                raise KeyError("the body's")
        with pytest.raises(TimeoutError):
            reader.dequeue(timeout=0)
        queue.enqueue("next")
        assert reader.dequeue(timeout=0) == "next"


def test_a_body_that_raises_gives_the_bytes_back() -> None:
    with sides() as (queue, [reader]):
        count = fill(queue)
        for _ in range(count):
            with pytest.raises(KeyError, match="the body's"), reader.acquire_read():
                raise KeyError("the body's")
        assert fill(queue) == count, "all of the ring is free"


def test_views_end_with_their_with() -> None:
    with sides(max_chunk_bytes=5000) as (queue, [reader]):
        with queue.acquire_write() as written:
            written[:] = content(0, 5000)
        with reader.acquire_read() as read:
            assert read[:4] == content(0, 5000)[:4]
        for view in (written, read):
            with pytest.raises(ValueError, match="released"):
                view[0]


def test_parts_of_a_view_hide_no_error_of_the_body() -> None:
    with sides(max_chunk_bytes=5000) as (queue, [reader]):
        kept: list[Any] = []
        with pytest.raises(KeyError, match="the body's"), queue.acquire_write() as view:
            kept += (view[10:20], pickle.PickleBuffer(view))
            raise KeyError("the body's")
        kept.clear()
        with queue.acquire_write() as view:
            view[:] = content(0, 5000)
            kept += (view[10:20], pickle.PickleBuffer(view))
        kept.clear()
        with pytest.raises(KeyError, match="the body's"), reader.acquire_read() as view:
            kept += (view[10:20], pickle.PickleBuffer(view))
            raise KeyError("the body's")
        assert (bytes(kept[0]), bytes(kept[1])) == (content(0, 5000)[10:20], content(0, 5000))
        kept.clear()
        queue.enqueue("next")
        assert reader.dequeue(timeout=0) == "next"


def test_bytes_that_a_part_of_a_view_shows_are_not_overwritten() -> None:
    with sides() as (queue, [reader]):
        queue.enqueue(content(0, 1000))
        with reader.acquire_read() as view:
            part = view[-500:]
            before = bytes(part)
        for sequence in range(1, 3 * FITS):
            try:
                queue.enqueue(content(sequence, 1000), timeout=0)
            except TimeoutError:
                break
            reader.dequeue()
        else:
            raise AssertionError("the writer went over bytes that are still looked at")
        assert part == before
        part.release()
        del part, view
        queue.enqueue("room again", timeout=0)


# arguments


@pytest.mark.parametrize(
    ("arguments", "options", "error", "named"),
    [
        (("1", 1), {}, TypeError, "n_reader must be .*'1'"),
        ((True, 1), {}, TypeError, "n_reader must be .*True"),
        ((-1, 0), {}, ValueError, "n_reader must be .*-1"),
        ((1, 1.0), {}, TypeError, "n_local_reader must be .*1.0"),
        ((1, -1), {}, ValueError, "n_local_reader must be .*-1"),
        ((1, 2), {}, ValueError, "n_local_reader must be .*1.*2"),
        ((2, 2, [1]), {}, ValueError, r"local_reader_ranks must be 2 .*\[1\]"),
        ((2, 2, [1, 1]), {}, ValueError, r"local_reader_ranks must be 2 .*\[1, 1\]"),
        ((2, 2, ["0", 1]), {}, TypeError, r"local_reader_ranks must be .*'0'"),
        ((2, 2, [0, True]), {}, TypeError, r"local_reader_ranks must be .*True"),
        ((1, 1, [-1]), {}, ValueError, r"local_reader_ranks must be .*-1"),
        ((1, 1, 0), {}, TypeError, "local_reader_ranks must be .*0"),
        ((1, 1), {"max_chunk_bytes": 0}, ValueError, "max_chunk_bytes must be .*0"),
        ((1, 1), {"max_chunk_bytes": 1.5}, TypeError, "max_chunk_bytes must be .*1.5"),
        ((1, 1), {"max_chunks": 0}, ValueError, "max_chunks must be .*0"),
        ((1, 1), {"max_chunks": None}, TypeError, "max_chunks must be .*None"),
        ((1, 1), {"capacity": "lots"}, ValueError, "lots"),
        ((1, 1), {"capacity": -5}, ValueError, "-5"),
        ((1, 1), {"max_chunk_bytes": 1 << 50}, aiospin.SegmentTooLarge, "a segment of 22517"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(
    arguments: tuple[Any, ...], options: dict[str, Any], error: type[Exception], named: str
) -> None:
    with pytest.raises(error, match=named):
        MessageQueue(*arguments, **options)


@pytest.mark.parametrize(
    ("timeout", "error"), [("1", TypeError), ([], TypeError), (b"", TypeError), (float("nan"), ValueError)]
)
def test_what_is_no_time_out_is_refused_by_name(timeout: Any, error: type[Exception]) -> None:
    with sides() as (queue, [reader]), sides() as (full, [other]):
        count = fill(full)
        for call in (
            lambda: full.enqueue(bytes(1000), timeout),
            lambda: full.acquire_write(timeout).__enter__(),
            lambda: reader.dequeue(timeout),
            lambda: reader.acquire_read(timeout).__enter__(),
        ):
            with pytest.raises(error, match="timeout"):
                call()
        held_back(other, 0, count)
        queue.enqueue("unharmed")
        assert reader.dequeue() == "unharmed"


def test_what_cannot_be_pickled_sends_nothing() -> None:
    with sides() as (queue, [reader]):
        with pytest.raises(Exception, match="lambda"):
            queue.enqueue(lambda: None)
        queue.enqueue("next")
        assert reader.dequeue(timeout=0) == "next"


@pytest.mark.parametrize(
    ("options", "least", "most"),
    [
        ({}, 48 << 20, 49 << 20),  # two chunks of the ten
        ({"max_chunks": 1}, 24 << 20, 25 << 20),
        ({"max_chunk_bytes": 100_000}, 200_000, 500_000),
        ({"capacity": "1 MiB", "max_chunk_bytes": 1000}, 1 << 20, 1 << 20),
    ],
)
def test_the_ring_is_as_large_as_it_need_be(options: dict[str, Any], least: int, most: int) -> None:
    with sides(**{"max_chunk_bytes": 24 << 20, "capacity": None, **options}) as (queue, [reader]):
        assert queue._sender is not None
        capacity = queue._sender.end.statistics().capacity
        assert least <= capacity <= most
        chunk = options.get("max_chunk_bytes", 24 << 20)
        with queue.acquire_write(timeout=0) as view:
            assert len(view) == chunk
        if options.get("max_chunks") != 1:
            with queue.acquire_write(timeout=0) as view:
                assert len(view) == chunk
        for _ in range(2 if options.get("max_chunks") != 1 else 1):
            with reader.acquire_read(timeout=0) as view:
                assert len(view) == chunk


def test_the_attributes_of_the_interface_are_there() -> None:
    with sides((5, 9)) as (queue, [first, second]):
        assert (queue.n_local_reader, queue.n_remote_reader, queue.local_reader_rank) == (2, 0, -1)
        assert [(reader.local_reader_rank, reader.n_local_reader) for reader in (first, second)] == [(0, 2), (1, 2)]
        assert queue.export_handle() is queue.handle and packed(first.handle) == packed(queue.handle)
        assert not any(side.shutting_down for side in (queue, first, second))
