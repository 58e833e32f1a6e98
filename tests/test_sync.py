"""The calls for threads without an event loop: what they return, when they wait, and how a time-out ends them."""

from __future__ import annotations

import asyncio
import math
import queue as standard
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from ends import LARGEST, RING, asleep, content, ends, epoch, fill, pair, size_of

import aiospin
from aiospin._fallback import waiting as fallback_waiting

pytestmark = pytest.mark.usefixtures("leaves_nothing")


def test_every_way_to_put_and_get() -> None:
    with pair() as (writer, reader):
        writer.put(b"one")
        writer.put(b"head", bytearray(b"body"), memoryview(b"tail"))
        writer.put_nowait(b"three")
        writer.put_many([b"four", bytearray(b"five"), memoryview(b"six")])
        with writer.acquire_write(100) as room:
            room.data[:5] = b"seven"
            room.truncate(5)
        claim = writer.try_acquire_write(5)
        assert claim is not None
        claim.data[:] = b"eight"
        claim.publish()
        assert reader.get() == b"one"
        assert reader.get_nowait() == b"headbodytail"
        assert reader.get_many(2) == [b"three", b"four"]
        with reader.acquire_read() as slot:
            assert bytes(slot.data) == b"five"
        taken = reader.try_acquire_read()
        assert taken is not None and bytes(taken.data) == b"six"
        taken.release()
        assert reader.get_many(64) == [b"seven", b"eight"]
        assert reader.try_acquire_read() is None


def test_iteration_ends_with_the_stream() -> None:
    with pair() as (writer, reader):
        writer.put_many([b"a", b"b", b""])
        writer.close()
        assert list(reader) == [b"a", b"b", b""]
        assert list(reader) == []
        with pytest.raises(aiospin.QueueClosed, match="reader 0"):
            reader.get()


def test_the_queue_reads_for_its_only_reader() -> None:
    with aiospin.Queue(capacity=RING) as queue, queue.writer() as writer:
        writer.put(b"x")
        with queue.acquire_read() as slot:
            assert slot.sequence == 0
        writer.put_many([b"y", b"z"])
        assert queue.get() == b"y"
        writer.close()
        assert list(queue) == [b"z"]


def test_empty_and_full_are_the_standard_ones_too() -> None:
    with pair() as (writer, reader):
        for kind in (aiospin.Empty, standard.Empty, asyncio.QueueEmpty):
            with pytest.raises(kind, match="reader 0"):
                reader.get_nowait()
        fill(writer)
        for kind in (aiospin.Full, standard.Full, asyncio.QueueFull):
            with pytest.raises(kind):
                writer.put_nowait(bytes(1000))
        assert writer.try_acquire_write(1000) is None


def waits(reader: Any, writer: Any) -> dict[str, Callable[[float | None], object]]:
    """Every call that waits, on an empty queue for the reader and a full one for the writer."""

    def read(timeout: float | None) -> None:
        with reader.acquire_read(timeout=timeout):
            raise AssertionError("there was nothing to read")

    def write(timeout: float | None) -> None:
        with writer.acquire_write(1000, timeout=timeout):
            raise AssertionError("there was no room")

    return {
        "get": lambda timeout: reader.get(timeout=timeout),
        "get_positional": lambda timeout: reader.get(timeout),
        "get_many": lambda timeout: reader.get_many(3, timeout=timeout),
        "acquire_read": read,
        "put": lambda timeout: writer.put(bytes(1000), timeout=timeout),
        "put_many": lambda timeout: writer.put_many([bytes(1000)], timeout=timeout),
        "acquire_write": write,
        "wait_any": lambda timeout: aiospin.wait_any(reader, timeout=timeout),
    }


READS = ["get", "get_positional", "get_many", "acquire_read"]
WRITES = ["put", "put_many", "acquire_write"]


@pytest.mark.parametrize("call", [*READS, *WRITES, "wait_any"])
@pytest.mark.parametrize("timeout", [0, 0.0, 0.0105])
def test_a_timeout_is_kept_and_names_role_and_seconds(call: str, timeout: float) -> None:
    with pair() as (_, reader), pair() as (writer, _idle):
        fill(writer)
        wait = waits(reader, writer)[call]
        begun = time.monotonic()
        with pytest.raises(TimeoutError) as caught:
            wait(timeout)
        assert time.monotonic() - begun >= timeout
        assert str(float(timeout)) in str(caught.value) or str(timeout) in str(caught.value)
        if call in READS:
            assert "reader 0" in str(caught.value)
        if call in WRITES:
            assert "writer" in str(caught.value)


@pytest.mark.parametrize("call", [*READS, *WRITES])
def test_a_timeout_of_zero_looks_and_does_not_sleep(call: str) -> None:
    with pair() as (_, reader), pair() as (writer, _idle):
        fill(writer)
        with pytest.raises(TimeoutError):
            waits(reader, writer)[call](0)
        assert reader._counters()["parks"] == writer._counters()["parks"] == 0


@pytest.mark.parametrize("call", [*READS, *WRITES, "wait_any"])
@pytest.mark.parametrize(
    ("timeout", "error"),
    [(-1, ValueError), (-0.001, ValueError), (math.nan, ValueError), (-math.inf, ValueError), ("1", TypeError)],
)
def test_an_impossible_timeout_is_named(call: str, timeout: Any, error: type[Exception]) -> None:
    with pair() as (_, reader), pair() as (writer, _idle):
        fill(writer)
        with pytest.raises(error, match="timeout") as caught:
            waits(reader, writer)[call](timeout)
        assert repr(timeout) in str(caught.value)


@pytest.mark.parametrize("timeout", [None, math.inf, 1e300, 5e8])
def test_for_ever_has_several_spellings(timeout: float | None) -> None:
    with pair() as (writer, reader), ThreadPoolExecutor(1) as pool:
        getting = pool.submit(reader.get, timeout)
        asleep(reader)
        writer.put(b"at last")
        assert getting.result() == b"at last"


def test_a_timed_out_call_has_taken_and_left_nothing() -> None:
    with pair() as (writer, reader):
        with pytest.raises(TimeoutError):
            reader.get(timeout=0.001)
        with pytest.raises(TimeoutError):
            with reader.acquire_read(timeout=0.001):
                pass
        count = fill(writer)
        with pytest.raises(TimeoutError):
            writer.put(content(99, 1000), timeout=0.001)
        with pytest.raises(TimeoutError):
            with writer.acquire_write(1000, timeout=0.001) as claim:
                claim.data[:] = content(99, 1000)
        assert [reader.get() for _ in range(count)] == [content(sequence, 1000) for sequence in range(count)]
        with pytest.raises(aiospin.Empty):
            reader.get_nowait()


def test_a_timed_out_batch_has_put_its_first_ones_in_order() -> None:
    with pair() as (writer, reader):
        batch = [content(sequence, 1000) for sequence in range(100)]
        with pytest.raises(TimeoutError):
            writer.put_many(batch, timeout=0.001)
        got = reader.get_many(1000)
        assert 0 < len(got) < len(batch)
        assert got == batch[: len(got)]


def test_a_timed_out_large_message_shifts_nothing() -> None:
    with pair() as (writer, reader):
        writer.put(b"before")
        with pytest.raises(TimeoutError):
            writer.put(content(1, 10 * RING), timeout=0.001)
        assert reader.get() == b"before"
        writer.put(b"after")
        assert reader.get() == b"after"
        with ThreadPoolExecutor(1) as pool:
            putting = pool.submit(writer.put, content(2, 5 * RING))
            assert reader.get() == content(2, 5 * RING)
            putting.result()


def test_a_waiting_reader_and_a_waiting_writer_wake_each_other() -> None:
    count = 1500
    with ends(readers=2) as (_, writer, readers), ThreadPoolExecutor(2) as pool:
        reading = [pool.submit(lambda r=reader: [r.get() for _ in range(count)]) for reader in readers]
        expected = [content(sequence, size_of(sequence, 4000)) for sequence in range(count)]
        for message in expected:
            writer.put(message)
        assert all(future.result() == expected for future in reading)


def test_batches_pass_a_small_ring() -> None:
    expected = [content(sequence, size_of(sequence, 3000)) for sequence in range(1500)]
    with pair() as (writer, reader), ThreadPoolExecutor(1) as pool:
        putting = pool.submit(writer.put_many, iter(expected))
        got: list[bytes] = []
        while len(got) < len(expected):
            batch = reader.get_many(64)
            assert 1 <= len(batch) <= 64
            got += batch
        putting.result()
        assert got == expected


def test_get_many_takes_what_is_there() -> None:
    with pair() as (writer, reader):
        writer.put_many([b"%d" % number for number in range(10)])
        assert reader.get_many(4) == [b"0", b"1", b"2", b"3"]
        assert len(reader.get_many(100)) == 6
        writer.put(b"last")
        writer.close()
        assert reader.get_many(100) == [b"last"]
        with pytest.raises(aiospin.QueueClosed):
            reader.get_many(100)


def test_other_threads_run_while_a_thread_waits() -> None:
    """The counting thread must get through while the main thread is inside a wait, not after it."""
    with pair() as (writer, reader):
        counted = [0]

        def count() -> None:
            asleep(reader)
            for _ in range(100_000):
                counted[0] += 1
            writer.put(b"%d" % counted[0])

        thread = threading.Thread(target=count)
        thread.start()
        assert reader.get() == b"100000"
        thread.join()


def test_no_wait_between_threads_needs_the_recheck(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ping-pong with random pauses around the park: a lost wake would sleep until somebody looks after it."""
    monkeypatch.setattr(fallback_waiting, "_NAP", 3600.0)
    rounds = 2000
    late: list[bool] = []
    with pair() as (there, pong), pair() as (back, ping), ThreadPoolExecutor(1) as pool:
        for end in (pong, ping):
            monkeypatch.setattr(end, "_recheck", lambda waited, end=end: late.append(end._ready()))

        def answer() -> None:
            for sequence in range(rounds):
                back.put(pong.get())
                spin(sequence * 7919 % 400)

        answering = pool.submit(answer)
        for sequence in range(rounds):
            there.put(b"%d" % sequence)
            spin(sequence * 104729 % 400)
            assert ping.get() == b"%d" % sequence
        answering.result()
        assert not any(late)


def spin(steps: int) -> None:
    """Some time without a system call."""
    for _ in range(steps):
        pass


def test_blocking_in_an_event_loop_warns_once_and_only_when_it_waits() -> None:
    async def main() -> None:
        with pair() as (writer, reader):
            writer.put(b"ready")
            assert reader.get() == b"ready"
            with pytest.raises(TimeoutError):
                reader.get(timeout=0)
            with pytest.warns(aiospin.BlockingInEventLoopWarning, match="reader 0"):
                with pytest.raises(TimeoutError):
                    reader.get(timeout=0.001)
            with pytest.raises(TimeoutError):
                reader.get(timeout=0.001)

    asyncio.run(main())


def test_the_warning_as_an_error_loses_nothing() -> None:
    async def main() -> None:
        with pair() as (writer, reader):
            with pytest.raises(aiospin.BlockingInEventLoopWarning):
                reader.get(timeout=0.001)
            writer.put(b"x")
            assert reader.get() == b"x"

    asyncio.run(main())


def test_statistics_tell_how_waits_went() -> None:
    with ends() as (queue, writer, (reader,)), ThreadPoolExecutor(1) as pool:
        writer.put(b"x" * 100)
        assert queue.statistics().depth == 192 and queue.statistics().lag == (192,)
        reader.get()
        getting = pool.submit(reader.get)
        asleep(reader)
        writer.put(b"y")
        getting.result()
        statistics = queue.statistics()
        assert (statistics.published, statistics.depth, statistics.lag) == (320, 0, (0,))
        assert (statistics.read, statistics.written) == (2, 2) and statistics.parks >= 1 and statistics.leases == 0
        assert statistics.capacity == RING == queue.capacity
        with pytest.raises(AttributeError):
            statistics.depth = 1  # type: ignore[misc]


def test_ready_names_who_has_not_come() -> None:
    with aiospin.Queue(readers=3, capacity=RING) as queue, queue.reader(1) as reader:
        with pytest.raises(TimeoutError, match=r"reader 0, 2 was not attached within 0\.001 s"):
            queue.wait_ready(timeout=0.001)
        with pytest.raises(ValueError, match="-1"):
            queue.wait_ready(timeout=-1)
        with queue.reader(0), queue.reader(2):
            queue.wait_ready(timeout=0)
        assert reader.rank == 1
    with aiospin.Queue(readers=0, capacity=RING) as queue:
        queue.wait_ready(timeout=0)


def test_the_largest_slot_and_nothing() -> None:
    with pair() as (writer, reader):
        for sequence, size in enumerate((LARGEST, 0, LARGEST, LARGEST - 1, 0)):
            writer.put(content(sequence, size))
            assert reader.get() == content(sequence, size)
        assert epoch(reader) == 0  # it never had to sleep
