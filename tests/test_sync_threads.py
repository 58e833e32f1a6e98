"""Which threads may use an end: one after another always, several at once only a writer made for it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from ends import LARGEST, RING, asleep, content, ends, fill, pair, until

import aiospin

pytestmark = pytest.mark.usefixtures("leaves_nothing")


def in_new_thread(call: Callable[[], Any]) -> Any:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call).result()


def test_an_end_moves_between_threads() -> None:
    with pair() as (writer, reader):
        for sequence in range(20):
            in_new_thread(lambda sequence=sequence: writer.put(content(sequence, 500)))
            assert in_new_thread(reader.get) == content(sequence, 500)


def test_a_claim_and_a_lease_move_between_threads() -> None:
    with pair() as (writer, reader):
        claim = in_new_thread(lambda: writer.try_acquire_write(3))
        claim.data[:] = b"abc"
        in_new_thread(claim.publish)
        slot = in_new_thread(reader.try_acquire_read)
        assert bytes(slot.data) == b"abc"
        in_new_thread(slot.release)
        assert reader._counters()["leases"] == 0


def acquire(reader: Any) -> None:
    with reader.acquire_read():
        pass


def claim(writer: Any) -> None:
    with writer.acquire_write(10):
        pass


@pytest.mark.parametrize(
    "use",
    [
        lambda reader: reader.get(),
        lambda reader: reader.get(timeout=0),
        lambda reader: reader.get_nowait(),
        lambda reader: reader.get_many(5),
        lambda reader: reader.try_acquire_read(),
        acquire,
        lambda reader: next(iter(reader)),
    ],
    ids=["get", "get_at_once", "get_nowait", "get_many", "try_acquire_read", "acquire_read", "iteration"],
)
def test_a_second_thread_on_a_reader_is_told(use: Callable[[Any], object]) -> None:
    with pair() as (writer, reader), ThreadPoolExecutor(1) as pool:
        getting = pool.submit(reader.get)
        asleep(reader)
        with pytest.raises(aiospin.ReaderBusy, match="reader 0"):
            use(reader)
        writer.put(b"for the first")
        assert getting.result() == b"for the first"
        writer.put(b"for anybody")
        assert reader.get() == b"for anybody"


@pytest.mark.parametrize(
    "use",
    [
        lambda writer: writer.put(b"x"),
        lambda writer: writer.put(b"x", timeout=0),
        lambda writer: writer.put_many([b"x"]),
        lambda writer: writer.try_acquire_write(10),
        claim,
    ],
    ids=["put", "put_at_once", "put_many", "try_acquire_write", "acquire_write"],
)
def test_a_second_thread_on_a_writer_is_told(use: Callable[[Any], object]) -> None:
    with pair() as (writer, reader), ThreadPoolExecutor(1) as pool:
        count = fill(writer)
        putting = pool.submit(writer.put, content(count, 1000))
        asleep(writer)
        with pytest.raises(aiospin.WriterBusy, match="writer"):
            use(writer)
        for sequence in range(count + 1):
            assert reader.get() == content(sequence, 1000)
        putting.result()


def test_put_nowait_beside_a_waiting_thread_does_not_overtake() -> None:
    with pair() as (writer, reader), ThreadPoolExecutor(1) as pool:
        count = fill(writer)
        putting = pool.submit(writer.put, content(count, 1000))
        asleep(writer)
        with pytest.raises((aiospin.Full, aiospin.WriterBusy)):
            writer.put_nowait(b"")
        assert [reader.get() for _ in range(count + 1)] == [content(sequence, 1000) for sequence in range(count + 1)]
        putting.result()


@pytest.mark.parametrize("large", [False, True], ids=["in_place", "in_fragments"])
def test_an_outstanding_claim_keeps_the_writer(large: bool) -> None:
    with pair() as (writer, reader):
        slot = writer.try_acquire_write(2 * RING if large else 10)
        assert slot is not None
        for use in (lambda: writer.put(b"x"), lambda: writer.put_many([b"x"]), lambda: writer.try_acquire_write(1)):
            with pytest.raises(aiospin.WriterBusy, match="writer"):
                use()
        with pytest.raises((aiospin.Full, aiospin.WriterBusy)):
            writer.put_nowait(b"x")
        slot.abort()
        writer.put(b"free again")
        assert reader.get() == b"free again"


def test_threads_share_a_threadsafe_writer() -> None:
    threads, each = 8, 250
    with ends(threadsafe=True) as (_, writer, (reader,)), ThreadPoolExecutor(threads) as pool:
        start = threading.Barrier(threads)

        def send(thread: int) -> None:
            start.wait()
            for number in range(each):
                head = b"%d %d " % (thread, number)
                body = content(thread * each + number, 300 + number)
                if number % 5 == 0:
                    with writer.acquire_write(len(head + body)) as slot:
                        slot.data[:] = head + body
                elif number % 5 == 1:
                    writer.put_many([head + body])
                else:
                    writer.put(head, body)

        sending = [pool.submit(send, thread) for thread in range(threads)]
        seen: dict[int, int] = dict.fromkeys(range(threads), 0)
        for _ in range(threads * each):
            thread, number, body = reader.get().split(b" ", 2)
            assert int(number) == seen[int(thread)], "each thread's messages keep their order"
            assert body == content(int(thread) * each + int(number), 300 + int(number))
            seen[int(thread)] += 1
        for future in sending:
            future.result()
        assert set(seen.values()) == {each}


def test_large_messages_of_threads_do_not_mix() -> None:
    threads, each = 4, 5
    with ends(threadsafe=True) as (_, writer, (reader,)), ThreadPoolExecutor(threads) as pool:

        def send(thread: int) -> None:
            for number in range(each):
                writer.put(b"%d %d " % (thread, number), content(thread * each + number, 3 * RING))

        sending = [pool.submit(send, thread) for thread in range(threads)]
        seen = dict.fromkeys(range(threads), 0)
        for _ in range(threads * each):
            thread, number, body = reader.get().split(b" ", 2)
            assert int(number) == seen[int(thread)]
            assert body == content(int(thread) * each + int(number), 3 * RING)
            seen[int(thread)] += 1
        for future in sending:
            future.result()


def test_standing_in_line_has_a_timeout_too() -> None:
    with ends(threadsafe=True) as (_, writer, (reader,)), ThreadPoolExecutor(1) as pool:
        count = fill(writer)
        putting = pool.submit(writer.put, content(count, 1000))
        asleep(writer)
        with pytest.raises(TimeoutError, match="writer"):
            writer.put(b"x", timeout=0.001)
        assert [reader.get() for _ in range(count + 1)] == [content(sequence, 1000) for sequence in range(count + 1)]
        putting.result()


def test_close_ends_a_wait_of_another_thread() -> None:
    with pair() as (_, reader), pair() as (writer, _idle), ThreadPoolExecutor(2) as pool:
        count = fill(writer)
        for end, call in ((reader, reader.get), (writer, lambda: writer.put(content(count, 1000)))):
            waiting = pool.submit(call)
            asleep(end)
            end.close()
            with pytest.raises(aiospin.QueueClosed):
                waiting.result()


def test_close_ends_all_who_share_a_writer() -> None:
    with ends(threadsafe=True) as (_, writer, _readers), ThreadPoolExecutor(4) as pool:
        fill(writer, LARGEST // 2)
        waiting = [pool.submit(writer.put, bytes(LARGEST)) for _ in range(4)]
        asleep(writer)
        writer.close()
        for future in waiting:
            with pytest.raises(aiospin.QueueClosed):
                future.result()


@pytest.mark.parametrize("immediate", [False, True])
def test_shutdown_ends_waits_on_both_sides(immediate: bool) -> None:
    with ends(readers=2) as (queue, writer, (slow, fast)), ThreadPoolExecutor(2) as pool:
        count = fill(writer)
        for _ in range(count):
            fast.get()
        putting, getting = pool.submit(writer.put, bytes(1000)), pool.submit(fast.get)
        asleep(writer)
        asleep(fast)
        queue.shutdown(immediate=immediate)
        for future in (putting, getting):
            with pytest.raises(aiospin.QueueClosed):
                future.result()
        with pytest.raises(aiospin.QueueClosed):
            writer.put_nowait(b"")
        if not immediate:
            assert [slow.get() for _ in range(count)] == [content(sequence, 1000) for sequence in range(count)]
        with pytest.raises(aiospin.QueueClosed):
            slow.get()


def test_a_writer_that_closes_wakes_its_readers() -> None:
    with ends(readers=3) as (_, writer, readers), ThreadPoolExecutor(3) as pool:
        listing = [pool.submit(list, reader) for reader in readers]
        for reader in readers:
            asleep(reader)
        writer.put(b"one")
        until(lambda: all(reader._cursor > 0 for reader in readers))
        writer.close()
        assert [future.result() for future in listing] == [[b"one"]] * 3


def test_a_reader_that_leaves_lets_the_writer_go_on() -> None:
    with ends(readers=2) as (_, writer, (leaving, staying)), ThreadPoolExecutor(1) as pool:
        assert leaving.try_acquire_read() is None
        count = fill(writer)
        for _ in range(count):
            staying.get()
        putting = pool.submit(writer.put, b"room at last" * 100)
        asleep(writer)
        leaving.close()
        putting.result()
        assert staying.get() == b"room at last" * 100
