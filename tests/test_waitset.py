"""WaitSet: whichever of many readers and writers is ready, ended or bereaved, at a cost that is in the ready ones."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import random
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
from async_rig import (
    STRIDE,
    WHOLE,
    content,
    ends,
    fill,
    kill,
    let_in,
    number,
    pair,
    peer,
    put_and_hold,
    take_one_and_hold,
    turns,
)

from aiospin import PeerDied, Queue, QueueClosed, QueueReader, QueueWriter, ReaderBusy, WaitSet, await_any, wait_any

Run = Callable[[Coroutine[Any, Any, Any]], Any]


@contextlib.contextmanager
def queues(count: int) -> Iterator[tuple[list[QueueWriter[Any]], list[QueueReader[Any]]]]:
    """That many queues with one reader each."""
    with contextlib.ExitStack() as stack:
        made = [stack.enter_context(Queue(capacity="64 KiB")) for _ in range(count)]
        writers = [stack.enter_context(queue.writer()) for queue in made]
        readers = [stack.enter_context(queue.reader()) for queue in made]
        yield writers, readers


def waiting_in(waits: WaitSet) -> bool:
    return waits._waiter is not None


async def asleep(waits: WaitSet) -> None:
    """Let the loop turn until a wait sleeps."""
    while not waiting_in(waits):
        await asyncio.sleep(0)


async def test_it_returns_the_ready_ones_and_takes_nothing() -> None:
    with queues(4) as (writers, readers), WaitSet(readers) as waits:
        assert len(waits) == 4 and readers[0] in waits
        writers[2].put(content(2))
        writers[1].put(content(1))
        for _ in range(3):
            assert set(await waits.wait()) == {readers[1], readers[2]}
            assert set(waits.wait_sync()) == {readers[1], readers[2]}
        assert number(await readers[1].aget()) == 1
        assert await waits.wait() == [readers[2]]
        assert number(readers[2].get()) == 2
        with pytest.raises(TimeoutError):
            await waits.wait(timeout=0)
        with pytest.raises(TimeoutError):
            waits.wait_sync(timeout=0)


async def test_a_member_that_is_always_ready_hides_no_other() -> None:
    with queues(3) as (writers, readers), WaitSet(readers) as waits:
        with pytest.raises(TimeoutError):
            await waits.wait(timeout=0)
        for last in range(3):
            writers[last].put(content(last))
            assert set(await waits.wait(timeout=0)) == set(readers[: last + 1])
            assert set(waits.wait_sync(timeout=0)) == set(readers[: last + 1])


async def test_a_sleeping_wait_is_woken() -> None:
    with queues(8) as (writers, readers), WaitSet(readers) as waits:
        for sequence in range(100):
            waiting = asyncio.ensure_future(waits.wait())
            await asleep(waits)
            writers[sequence % 8].put(content(sequence))
            assert await waiting == [readers[sequence % 8]]
            assert number(readers[sequence % 8].get_nowait()) == sequence


async def test_a_bell_that_the_loop_hears_for_the_member_wakes_the_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that was awaited by itself leaves its bell in the loop, whose callback empties it before the set."""
    with pair(policy="eco") as (_, writer, reader), WaitSet([reader]) as waits:
        monkeypatch.setattr(waits, "_look_after", lambda: None)  # nothing but the bell
        alone = asyncio.ensure_future(reader.aget())
        await turns(5)
        writer.put(content(0))
        assert await alone == content(0)
        waiting = asyncio.ensure_future(waits.wait())
        await asleep(waits)
        await turns(2)
        writer.put(content(1))
        assert await asyncio.wait_for(waiting, 60) == [reader]
        assert reader.get_nowait() == content(1)


async def test_a_bell_that_the_set_empties_wakes_who_waits_for_the_member_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A set that was waited on stays in the loop, and may hear the bell first."""
    with pair(policy="eco") as (_, writer, reader), WaitSet([reader]) as waits:
        waiting = asyncio.ensure_future(waits.wait())
        await asleep(waits)
        writer.put(content(0))
        assert await waiting == [reader]
        assert reader.get_nowait() == content(0)
        monkeypatch.setattr(reader, "_look_after", lambda: None)  # nothing but the bell
        alone = asyncio.ensure_future(reader.aget())
        await turns(5)
        writer.put(content(1))
        waits._gather()
        assert await asyncio.wait_for(alone, 60) == content(1)


async def test_every_message_is_found_whoever_sends_and_whenever() -> None:
    chance = random.Random(1)
    with queues(5) as (writers, readers), WaitSet(readers) as waits:
        sent = [0] * 5
        received = [0] * 5

        async def send() -> None:
            for _ in range(2000):
                which = chance.randrange(5)
                await writers[which].aput(content(sent[which]))
                sent[which] += 1
                await turns(chance.randrange(3))

        sending = asyncio.create_task(send())
        while sum(received) < 2000:
            for reader in await waits.wait(timeout=60):
                which = readers.index(reader)  # type: ignore[arg-type]
                for _ in range(chance.randrange(3)):  # none at all, sometimes
                    with contextlib.suppress(TimeoutError):
                        assert number(await reader.aget(timeout=0)) == received[which]  # type: ignore[union-attr]
                        received[which] += 1
        await sending
        assert received == sent


async def test_members_come_and_go() -> None:
    with queues(3) as (writers, readers), WaitSet() as waits:
        with pytest.raises(TimeoutError):
            await waits.wait(timeout=0.001)
        waiting = asyncio.ensure_future(waits.wait())
        await asleep(waits)
        writers[0].put(content(0))
        waits.add(readers[0])  # under a wait
        assert await waiting == [readers[0]]
        waits.add(readers[0])
        assert len(waits) == 1
        waits.add(readers[1])
        waits.discard(readers[0])
        waits.discard(readers[0])
        with pytest.raises(TimeoutError):
            await waits.wait(timeout=0.001)
        waiting = asyncio.ensure_future(waits.wait())
        await asleep(waits)
        writers[1].put(content(1))
        assert await waiting == [readers[1]]
        waits.discard(readers[1])
        assert len(waits) == 0 and readers[1] not in waits
        assert number(await readers[0].aget()) == 0


async def test_one_wait_at_a_time() -> None:
    with queues(1) as (writers, readers), WaitSet(readers) as waits:
        waiting = asyncio.ensure_future(waits.wait())
        await asleep(waits)
        with pytest.raises(ReaderBusy):
            await waits.wait()
        with pytest.raises(ReaderBusy):
            waits.wait_sync(timeout=0)
        writers[0].put(content(0))
        assert await waiting == readers


async def test_a_cancelled_wait_changes_nothing() -> None:
    with queues(3) as (writers, readers), WaitSet(readers) as waits:
        for sequence in range(100):
            waiting = asyncio.ensure_future(waits.wait())
            await turns(sequence % 4)
            if sequence % 2:
                writers[sequence % 3].put(content(sequence))
            waiting.cancel()
            await asyncio.wait([waiting])
            if not sequence % 2:
                writers[sequence % 3].put(content(sequence))
            assert await waits.wait(timeout=60) == [readers[sequence % 3]]
            assert number(readers[sequence % 3].get_nowait()) == sequence


async def test_writers_are_ready_when_there_is_room() -> None:
    with pair() as (_, writer, reader), WaitSet() as waits:
        waits.add(writer, nbytes=WHOLE)
        assert await waits.wait() == [writer]
        count = fill(writer)
        with pytest.raises(TimeoutError):
            await waits.wait(timeout=0.001)
        waiting = asyncio.ensure_future(waits.wait())
        await asleep(waits)
        reader.get_many(1)
        assert await waiting == [writer]
        writer.put_nowait(content(0, WHOLE))
        waits.add(writer, nbytes=2 * STRIDE)  # more than one message frees
        reader.get_many(1)
        with pytest.raises(TimeoutError):
            await waits.wait(timeout=0.001)
        reader.get_many(2)
        assert waits.wait_sync() == [writer]
        assert len(reader.get_many(1000)) == count + 1 - 4


async def test_closed_and_ended_members_count_as_ready() -> None:
    with queues(3) as (writers, readers), WaitSet(readers) as waits:
        waiting = asyncio.ensure_future(waits.wait())
        await asleep(waits)
        readers[0].close()
        assert await waiting == [readers[0]]
        with pytest.raises(QueueClosed):
            await readers[0].aget()
        waits.discard(readers[0])
        waiting = asyncio.ensure_future(waits.wait())
        await asleep(waits)
        writers[1].close()
        assert await waiting == [readers[1]]
        for _ in range(2):
            assert waits.wait_sync() == [readers[1]]
            with pytest.raises(QueueClosed):
                await readers[1].aget()
        with pytest.raises(QueueClosed):
            waits.add(readers[0])


async def test_a_shut_down_queue_is_ready_at_both_ends() -> None:
    with pair() as (queue, writer, reader), WaitSet([reader]) as waits:
        fill(writer)
        reader.get_many(1000)
        waiting = asyncio.ensure_future(waits.wait())
        await asleep(waits)
        queue.shutdown()
        assert await waiting == [reader]
        waits.add(writer)
        assert set(await waits.wait()) == {reader, writer}
        with pytest.raises(QueueClosed):
            await writer.aput(b"")


async def test_the_death_of_a_peer_makes_its_member_ready_once() -> None:
    with Queue(capacity="64 KiB") as queue, queue.reader() as reader, queues(1) as (_, others):
        with WaitSet([reader, *others]) as waits, peer(put_and_hold, queue.writer(), 0, 1) as child:
            assert await waits.wait(timeout=60) == [reader]
            assert number(reader.get_nowait()) == 0
            waiting = asyncio.ensure_future(waits.wait(timeout=60))
            await asleep(waits)
            kill(child)
            assert await waiting == [reader]
            with pytest.raises(PeerDied):
                await reader.aget()
            with pytest.raises(TimeoutError):
                await waits.wait(timeout=0.001)
            with queue.writer() as successor:
                successor.put(content(1))
                assert waits.wait_sync(timeout=60) == [reader]
                assert number(reader.get_nowait()) == 1


def test_the_death_of_a_reader_makes_its_writer_ready() -> None:
    with Queue(capacity="64 KiB") as queue, queue.writer() as writer, WaitSet() as waits:
        with peer(take_one_and_hold, queue.reader()) as child:
            let_in(queue, writer)
            fill(writer)
            waits.add(writer, nbytes=WHOLE)
            with pytest.raises(TimeoutError):
                waits.wait_sync(timeout=0)
            kill(child)
            assert waits.wait_sync(timeout=60) == [writer]
            with pytest.raises(PeerDied):
                writer.put(content(0, WHOLE))


async def test_closing_the_set_ends_its_wait_and_leaves_its_members() -> None:
    with queues(2) as (writers, readers):
        waits = WaitSet(readers)
        waiting = asyncio.ensure_future(waits.wait())
        await asleep(waits)
        waits.close()
        with pytest.raises(QueueClosed):
            await waiting
        await waits.aclose()
        for use in (lambda: waits.add(readers[0]), lambda: waits.wait_sync(timeout=0), waits.__enter__):
            with pytest.raises(QueueClosed):
                use()
        writers[0].put(content(0))
        assert number(await readers[0].aget()) == 0
        async with WaitSet(readers) as again:
            writers[1].put(content(1))
            assert await again.wait() == [readers[1]]


def test_a_set_moves_from_loop_to_loop(run_async: Run) -> None:
    with queues(2) as (writers, readers), WaitSet(readers) as waits:

        async def exchange(sequence: int) -> None:
            waiting = asyncio.ensure_future(waits.wait())
            await asleep(waits)
            writers[sequence % 2].put(content(sequence))
            assert await waiting == [readers[sequence % 2]]
            assert number(await readers[sequence % 2].aget()) == sequence

        for sequence in range(20):
            run_async(exchange(sequence))
            writers[0].put(content(sequence))
            assert waits.wait_sync() == [readers[0]]
            readers[0].get_nowait()


def test_wait_sync_is_woken_from_another_thread() -> None:
    with queues(3) as (writers, readers), WaitSet(readers) as waits:

        def send() -> None:
            for sequence in range(300):
                writers[sequence % 3].put(content(sequence))

        sender = threading.Thread(target=send)
        sender.start()
        received: list[int] = []
        while len(received) < 300:
            for reader in waits.wait_sync(timeout=60):
                received.append(number(reader.get_nowait()))  # type: ignore[union-attr]
        sender.join()
        assert sorted(received) == list(range(300))


async def test_the_sugar_waits_for_any() -> None:
    with queues(3) as (writers, readers):
        waiting = asyncio.ensure_future(await_any(*readers, timeout=60))
        await turns()
        writers[1].put(content(1))
        assert await waiting == [readers[1]]
        assert wait_any(*readers) == [readers[1]]
        with pytest.raises(TimeoutError):
            await await_any(readers[0], timeout=0)
        with pytest.raises(TimeoutError):
            wait_any(readers[0], timeout=0)


@pytest.mark.parametrize("member", [None, 3, "reader", object()])
def test_what_is_no_member_is_refused(member: Any) -> None:
    with WaitSet() as waits, pytest.raises(TypeError, match="member"):
        waits.add(member)


@pytest.mark.parametrize("nbytes", [-1, 1.5, "1", True])
def test_what_is_no_size_is_refused(nbytes: Any) -> None:
    with pair() as (_, writer, _), WaitSet() as waits, pytest.raises(ValueError, match="nbytes"):
        waits.add(writer, nbytes=nbytes)


async def test_the_cost_of_a_wake_is_in_the_ready_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """One active member among 256: the others are not looked at again."""
    looks: list[int | None] = []

    def counting(name: str) -> Any:
        original = getattr(QueueReader, name)

        def look(self: QueueReader[Any]) -> Any:
            looks.append(self.rank)
            return original(self)

        return look

    with ends(256, capacity="256 KiB") as (queue, writer, readers), queues(1) as (writers, others):
        with WaitSet([*readers, *others]) as waits:
            for _ in range(2):  # each bell rang once, when its writer came
                with pytest.raises(TimeoutError):
                    await waits.wait(timeout=0)
            for name in ("_ready", "_announce", "_drain"):
                monkeypatch.setattr(QueueReader, name, counting(name))
            for sequence in range(50):
                waiting = asyncio.ensure_future(waits.wait())
                await asleep(waits)
                writers[0].put(content(sequence))
                assert await waiting == others
                assert number(others[0].get_nowait()) == sequence
            assert len(looks) <= 50 * 8
            monkeypatch.undo()
        assert queue.statistics().depth == 0 and writer.statistics().rings >= 0


async def test_collecting_a_set_leaves_its_members() -> None:
    with queues(1) as (writers, readers):
        waits: Any = WaitSet(readers)
        with pytest.raises(TimeoutError):
            await waits.wait(timeout=0.001)
        waits.close()
        del waits
        gc.collect()
        writers[0].put(content(0))
        assert number(await readers[0].aget()) == 0


def test_what_a_thread_is_about_to_write_to_is_not_closed_under_it() -> None:
    """Found by TSan: the number could be somebody else's by the time of the write."""
    waits: Any = WaitSet()
    under_way, fd = waits._poked, waits._poke_fd  # as a thread in the middle of `_poke` has it
    waits.close()
    os.eventfd_write(under_way.fd, 1)
    del under_way
    with pytest.raises(OSError):
        os.fstat(fd)
    waits._poke()  # too late, and of no effect
