"""Python code that runs inside a call (codecs, generators, signal handlers, other threads) may do anything to the ends.

Each test is a program that once corrupted memory, lost a message or hung; it fails without its fix.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import numpy as np
import pytest
from ends import ends

import aiospin

RING = 65536


class Pausing:
    """An object whose unpickling stops in the middle until the test goes on."""

    reached = threading.Event()
    go_on = threading.Event()

    def __reduce__(self) -> Any:
        return (_pause, ())


def _pause() -> str:
    Pausing.reached.set()
    assert Pausing.go_on.wait(30)
    return "paused"


class ClosingLoop(asyncio.SelectorEventLoop):
    """Runs something where the loop makes a future: a signal handler or another thread may run just there."""

    interruption: Callable[[], None] | None = None

    def create_future(self) -> asyncio.Future[Any]:
        interruption, self.interruption = self.interruption, None
        if interruption is not None:
            interruption()
        return super().create_future()


def test_a_reader_closed_while_it_is_about_to_park_says_so() -> None:
    loop = ClosingLoop()

    async def main() -> None:
        with aiospin.Queue[bytes](capacity=RING, policy=aiospin.WaitPolicy(maximum_us=0.5, inline_us=0)) as queue:
            writer, reader = queue.writer(), queue.reader()
            for _ in range(3):  # from the second wait on, it parks without a step of Python
                taking = asyncio.ensure_future(reader.aget())
                await asyncio.sleep(0)
                writer.put(b"x")
                assert await taking == b"x"
            loop.call_soon(lambda: setattr(loop, "interruption", reader.close))
            with pytest.raises(aiospin.QueueClosed, match="reader 0"):
                await asyncio.ensure_future(reader.aget())
            writer.close()

    try:
        loop.run_until_complete(main())
    finally:
        loop.close()


@pytest.mark.parametrize("size", [100, 3 * RING])
def test_views_of_a_published_slot_outlive_everything(size: int) -> None:
    with aiospin.Queue[bytes](capacity=RING) as queue:
        writer, reader = queue.writer(), queue.reader()
        taking = threading.Thread(target=reader.get)
        taking.start()
        with writer.acquire_write(size) as slot:
            view, array = slot.data, np.frombuffer(slot.data, dtype=np.uint8)
            view[:5] = b"hello"
        taking.join()
        del slot
        writer.close()
        reader.close()
    assert len(bytes(view)) == len(array.tobytes()) == size
    if size > RING:  # private memory, which nobody else writes to
        assert bytes(view[:5]) == b"hello"


def test_a_claim_made_while_payloads_are_gathered_is_left_alone() -> None:
    claimed, published = threading.Event(), threading.Event()
    with ends(capacity=RING, threadsafe=True) as (_, writer, (reader,)):

        def payloads() -> Iterator[bytes]:
            assert claimed.wait(30)
            yield from (b"1", b"2")

        putting = threading.Thread(target=lambda: writer.put_many(payloads()))
        putting.start()
        with writer.acquire_write(32) as slot:
            slot.data[:] = b"B" * 32
            claimed.set()
        published.set()
        putting.join()
        assert [reader.get(timeout=30) for _ in range(3)] == [b"B" * 32, b"1", b"2"]


def test_a_thread_does_not_wait_for_its_own_claim() -> None:
    with ends(capacity=RING, threadsafe=True) as (_, writer, (reader,)):
        with writer.acquire_write(1) as slot:
            with pytest.raises(aiospin.WriterBusy):
                writer.put(b"x")
            slot.data[:] = b"y"
        assert reader.get() == b"y"


def test_payloads_of_many_cannot_be_resized_while_they_wait(
    run_async: Callable[[Coroutine[Any, Any, None]], None],
) -> None:
    async def main() -> None:
        with ends(capacity=RING) as (_, writer, (reader,)):
            large = bytearray(b"a" * 300_000)
            putting = asyncio.ensure_future(writer.aput_many([large, b"n" * 100_000, b"last"]))
            await asyncio.sleep(0)
            with pytest.raises(BufferError):
                del large[10:]
            assert [len(await reader.aget()) for _ in range(3)] == [300_000, 100_000, 4]
            await putting

    run_async(main())


def test_a_reader_closed_while_its_codec_runs_gives_its_rank_up() -> None:
    Pausing.reached.clear()
    Pausing.go_on.clear()
    with aiospin.Queue[Any](capacity=RING, codec="pickle") as queue:
        writer, reader = queue.writer(), queue.reader()
        writer.put_many([Pausing(), "next"])
        taking = threading.Thread(target=lambda: reader.get_many(2))
        taking.start()
        assert Pausing.reached.wait(30)
        reader.close()
        Pausing.go_on.set()
        taking.join()
        successor = queue.reader()
        with successor, pytest.raises(TimeoutError):
            successor.get(timeout=0)
        writer.close()


def test_a_closed_reader_with_leases_hands_nothing_out() -> None:
    with aiospin.Queue[bytes](capacity=RING) as queue:
        writer, reader = queue.writer(), queue.reader()
        writer.put_many([b"held", b"next"])
        with reader.acquire_read() as slot:
            reader.close()
            with pytest.raises(aiospin.QueueClosed):
                reader.get()
            assert bytes(slot.data) == b"held"
        writer.close()


@pytest.mark.parametrize("close", ["member", "set"])
def test_a_wait_set_hears_of_an_end_in_another_thread(
    close: str, run_async: Callable[[Coroutine[Any, Any, None]], None]
) -> None:
    """By its own wake-up: the look once a second is put off."""

    async def main() -> None:
        with aiospin.Queue[bytes](capacity=RING) as queue:
            reader = queue.reader()
            waits = aiospin.WaitSet([reader])
            waiting = asyncio.ensure_future(waits.wait())
            while waits._waiter is None:
                await asyncio.sleep(0)
            waits._look_after = lambda: None  # type: ignore[method-assign]
            closing = threading.Thread(target=reader.close if close == "member" else waits.close)
            closing.start()
            if close == "member":
                assert await waiting == [reader]
            else:
                with pytest.raises(aiospin.QueueClosed):
                    await waiting
            closing.join()
            waits.close()
            reader.close()

    run_async(main())


def test_a_sleeping_thread_hears_of_a_closed_member() -> None:
    with aiospin.Queue[bytes](capacity=RING) as queue:
        reader = queue.reader()
        with aiospin.WaitSet([reader]) as waits:
            waits._look_after = lambda: None  # type: ignore[method-assign]
            closing = threading.Timer(0, reader.close)
            closing.start()
            assert waits.wait_sync() == [reader]
            closing.join()


def test_closing_in_a_forked_child_is_none_of_the_parents_business() -> None:
    from forked import in_child

    with ends(capacity=RING) as (queue, writer, (reader,)):

        def child() -> None:
            with pytest.raises(aiospin.ForkedUse):
                queue.shutdown()
            queue.close()

        in_child(child)
        writer.put(b"still open")
        assert reader.get(timeout=30) == b"still open"
