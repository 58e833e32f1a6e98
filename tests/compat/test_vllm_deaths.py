"""Processes killed beside a MessageQueue: both sides hear of it at once, in the user's ranks, until one succeeds."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from compat_rig import BEGIN, attached, end, fill, held_back, only_writer, packed, reading, sides, slept, writing
from ends import RING, asleep, content, until, watching
from programs import OTHER, Program

import aiospin
from aiospin import _layout, _roles
from aiospin.compat.vllm import MessageQueue, _sender

pytestmark = pytest.mark.usefixtures("leaves_nothing")

HOLDS = (
    BEGIN
    + """
    queue = opened()
    for _ in range(arguments["messages"]):
        queue.dequeue()
    with queue.acquire_read():
        say("ready")
        hear()
"""
)
STOPS = (
    BEGIN
    + """
    queue = MessageQueue(1, 1, capacity=RING, max_chunk_bytes=1000)
    queue.enqueue("whole")
    with queue.acquire_write() as view:
        view[:] = bytes(1000)
        say(pickle.dumps(queue.export_handle()).hex())
        hear()
"""
)


def died(call: Callable[[], Any], rank: int | None, pid: int) -> aiospin.PeerDied:
    with pytest.raises(aiospin.PeerDied) as caught:
        call()
    assert (caught.value.rank, caught.value.pid) == (rank, pid)
    return caught.value


# a reader


@pytest.mark.parametrize("backend", [aiospin.backend, OTHER], ids=["same_backend", "other_backend"])
def test_a_writer_that_waits_hears_of_a_readers_death_at_once_and_again(backend: str) -> None:
    with ThreadPoolExecutor(1) as pool, only_writer((5, 9)) as queue:
        other = MessageQueue.create_from_handle(queue.export_handle(), 5)
        with reading(queue, 9, text=HOLDS, backend=backend) as program:
            queue.enqueue(content(0, 1000))
            assert program.hear() == "ready"
            count = fill(queue, 1)
            held_back(other, 0, count)
            sending = pool.submit(queue.enqueue, content(count, 1000))
            asleep(end(queue))
            watching(program.pid)
            program.kill()
            error = died(sending.result, 9, program.pid)
        assert error.noticed == "pidfd", "at once, and not when the lock was looked at"
        assert str(error).startswith(f"reader 9 (pid {program.pid})")
        for call in (
            lambda: queue.enqueue(content(count, 1000)),
            lambda: queue.enqueue(bytes(5 * RING)),
            lambda: queue.enqueue(content(count, 1000), timeout=0),
            lambda: queue.acquire_write().__enter__(),
            lambda: queue.broadcast_object(content(count, 1000)),
        ):
            died(call, 9, program.pid)
        successor = MessageQueue.create_from_handle(queue.export_handle(), 9)
        with pytest.raises(TimeoutError):
            queue.enqueue(content(count, 1000), timeout=0)
        held_back(successor, 0, count)  # what the dead one still had comes again
        queue.enqueue(content(count, 1000))
        for reader in (other, successor):
            held_back(reader, count, count + 1)
            reader.shutdown()


def test_an_error_that_is_kept_keeps_no_place() -> None:
    """Its traceback leads to where it was raised; yet a writer that shuts down is gone at once."""
    with only_writer((5, 9)) as queue:
        other = MessageQueue.create_from_handle(queue.export_handle(), 5)
        with reading(queue, 9) as program:
            assert program.hear() == "ready"
            count = fill(queue)
            program.kill()
            kept = [died(lambda: queue.enqueue(bytes(1000)), 9, program.pid) for _ in range(3)]
        queue.shutdown()
        for sequence in range(count):
            assert other.dequeue() == content(sequence, 1000)
        with pytest.raises(aiospin.QueueClosed):
            other.dequeue(timeout=0)
        other.shutdown()
        assert len(kept) == 3


async def test_coroutines_that_send_hear_of_it_too() -> None:
    with only_writer((5,)) as queue:
        with reading(queue, 5) as program:
            assert program.hear() == "ready"
            count = fill(queue)
            sending = asyncio.ensure_future(queue.aenqueue(content(count, 1000)))
            while not slept(queue):
                await asyncio.sleep(0)
            program.kill()
            with pytest.raises(aiospin.PeerDied) as caught:
                await sending
            assert (caught.value.rank, caught.value.pid, caught.value.noticed) == (5, program.pid, "pidfd")
        with pytest.raises(aiospin.PeerDied) as again:
            await queue.aenqueue(content(count, 1000))
        assert (again.value.rank, again.value.pid) == (5, program.pid)
        successor = MessageQueue.create_from_handle(queue.export_handle(), 5)
        sending = asyncio.ensure_future(queue.aenqueue(content(count, 1000)))
        for sequence in range(count + 1):
            assert await successor.adequeue() == content(sequence, 1000)
        await sending
        successor.shutdown()


@pytest.mark.parametrize("sends", ["enqueue", "aenqueue", "acquire_write"])
def test_a_writer_that_never_waits_hears_of_it_too(
    sends: str, monkeypatch: pytest.MonkeyPatch, run_async: Callable[[Any], Any]
) -> None:
    monkeypatch.setattr(_sender, "_LOOK_AFTER", -1.0)  # at every message

    def send(sequence: int) -> None:
        if sends == "enqueue":
            queue.enqueue(content(sequence, 1000))
        elif sends == "aenqueue":
            run_async(queue.aenqueue(content(sequence, 1000)))
        else:
            with queue.acquire_write() as view:
                view[:] = content(sequence, 1000)

    with only_writer((5, 9)) as queue:
        other = MessageQueue.create_from_handle(queue.export_handle(), 5)
        with reading(queue, 9) as program:
            assert program.hear() == "ready"
            send(0)
            program.kill()
            died(lambda: send(99), 9, program.pid)
        send(1)  # there is room, so that nobody waits for the dead
        for sequence in range(2):
            with other.acquire_read() as view:
                assert content(sequence, 1000) in bytes(view)
        with pytest.raises(TimeoutError):
            other.dequeue(timeout=0)
        other.shutdown()


def test_a_look_for_the_dead_is_taken_now_and_then_and_not_for_each_message(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    looks: list[float] = []
    monkeypatch.setattr(_sender, "_now", lambda: now[0])
    with sides() as (queue, [reader]):
        monkeypatch.setattr(end(queue), "_look_for_deaths", lambda: looks.append(now[0]))
        for step in range(1000):
            now[0] = step / 1000
            queue.enqueue(step)
            assert reader.dequeue() == step
    assert len(looks) == 20 and looks == sorted(looks)


def test_each_of_several_deaths_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_sender, "_LOOK_AFTER", -1.0)
    with only_writer((3, 1, 2)) as queue:
        with reading(queue, 3) as first, reading(queue, 2) as second:
            assert first.hear() == second.hear() == "ready"
            first.kill()
            second.kill()
            told = set()
            for _ in range(2):
                with pytest.raises(aiospin.PeerDied) as caught:
                    queue.enqueue("for somebody")
                told.add((caught.value.rank, caught.value.pid))
            assert told == {(3, first.pid), (2, second.pid)}


def test_a_reader_that_leaves_after_a_death_was_told_ends_the_matter() -> None:
    """A successor that shuts down gives the place up: nobody is waited for there any more."""
    with only_writer((5,)) as queue:
        with reading(queue, 5) as program:
            assert program.hear() == "ready"
            count = fill(queue)
            program.kill()
            died(lambda: queue.enqueue(bytes(1000)), 5, program.pid)
        MessageQueue.create_from_handle(queue.export_handle(), 5).shutdown()
        for sequence in range(3 * count):
            queue.enqueue(content(sequence, 1000), timeout=0)


@pytest.mark.parametrize("sends", ["enqueue", "enqueue_large", "acquire_write"])
def test_a_death_that_is_over_is_not_told_again(sends: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Told while there was room; by the time there is none, a successor reads."""
    monkeypatch.setattr(_sender, "_LOOK_AFTER", -1.0)
    with ThreadPoolExecutor(1) as pool, only_writer((5,)) as queue:
        with reading(queue, 5) as program:
            assert program.hear() == "ready"
            queue.enqueue(content(0, 1000))
            program.kill()
            died(lambda: queue.enqueue("for the dead"), 5, program.pid)
        successor = MessageQueue.create_from_handle(queue.export_handle(), 5)
        count = fill(queue, 1) if sends == "enqueue" else 1
        if sends == "acquire_write":
            for count in range(2, 1000):
                try:
                    with queue.acquire_write(timeout=0) as view:
                        view[:] = content(count, 1000)
                except TimeoutError:
                    break
        if sends == "acquire_write":
            for _ in range(count - 1):
                with successor.acquire_read(timeout=0):
                    pass
        elif sends == "enqueue":
            held_back(successor, 0, count)
        else:
            held_back(successor, 0, 1)
            sending = pool.submit(queue.enqueue, content(1, 5 * RING))
            assert successor.dequeue() == content(1, 5 * RING)
            sending.result()
        successor.shutdown()


# the writer

WAITS: dict[str, Callable[[MessageQueue], Any]] = {
    "dequeue": lambda queue: queue.dequeue(),
    "dequeue_with_timeout": lambda queue: queue.dequeue(timeout=3600),
    "dequeue_indefinite": lambda queue: queue.dequeue(indefinite=True),
    "acquire_read": lambda queue: queue.acquire_read().__enter__(),
    "broadcast_object": lambda queue: queue.broadcast_object(),
}


@pytest.mark.parametrize("wait", WAITS)
def test_readers_that_wait_hear_of_the_writers_death_at_once_and_again(wait: str) -> None:
    with ThreadPoolExecutor(2) as pool, writing((4, 8)) as program:
        readers = [attached(program, rank) for rank in (4, 8)]
        waiting = [pool.submit(WAITS[wait], reader) for reader in readers]
        for reader in readers:
            asleep(end(reader))
        watching(program.pid)
        until(lambda: all(end(reader)._peers.fds() for reader in readers))
        program.kill()
        for reader, future in zip(readers, waiting, strict=True):
            error = died(future.result, None, program.pid)
            assert error.noticed == "pidfd"
            for again in WAITS.values():
                died(lambda again=again, reader=reader: again(reader), None, program.pid)  # type: ignore[misc]
            reader.shutdown()


async def test_coroutines_that_receive_hear_of_it_too() -> None:
    with writing((4,)) as program:
        reader = attached(program, 4)
        receiving = asyncio.ensure_future(reader.adequeue())
        while not slept(reader):
            await asyncio.sleep(0)
        program.kill()
        for call in (receiving, reader.adequeue(), reader.adequeue(timeout=3600)):
            with pytest.raises(aiospin.PeerDied) as caught:
                await call
            assert (caught.value.rank, caught.value.pid, caught.value.noticed) == (None, program.pid, "pidfd")
        reader.shutdown()


def test_what_the_dead_writer_had_sent_is_received_first() -> None:
    with writing((4,), messages=3) as program:
        reader = attached(program, 4)
        program.kill()
        for sequence in range(3):
            assert reader.dequeue() == content(sequence, 500)
        for _ in range(2):
            died(reader.dequeue, None, program.pid)
            died(lambda: reader.dequeue(timeout=0), None, program.pid)
        reader.shutdown()


def test_a_writer_killed_in_the_middle_of_a_message_has_sent_nothing_of_it() -> None:
    with writing(text=STOPS) as program:
        reader = attached(program, 0)
        program.kill()
        assert reader.dequeue() == "whole"
        died(reader.dequeue, None, program.pid)
        reader.shutdown()


def test_a_reader_that_waits_for_others_hears_of_the_writers_death() -> None:
    with ThreadPoolExecutor(1) as pool, writing((4, 8)) as program:
        reader = attached(program, 4)
        waiting = pool.submit(reader.wait_until_ready)
        program.kill()
        died(waiting.result, None, program.pid)
        died(reader.wait_until_ready, None, program.pid)
        reader.shutdown()


def test_a_queue_whose_writer_was_killed_can_not_be_attached_to() -> None:
    """The descriptors went with it: who comes late is told so, and nothing hangs."""
    with writing((4, 8)) as program:
        reader = attached(program, 4)
        program.kill()
        handle = reader.export_handle()
        reader.shutdown()
    with pytest.raises(aiospin.AttachError, match=str(program.pid)):
        MessageQueue.create_from_handle(handle, 8)


def test_a_reader_that_was_killed_leaves_its_place() -> None:
    """Nobody is told who never waits for it, the others go on, and a successor begins where the dead one was."""
    with only_writer((5, 9)) as queue:
        other = MessageQueue.create_from_handle(queue.export_handle(), 9)
        for sequence in range(4):
            queue.enqueue(content(sequence, 1000))
        with reading(queue, 5, messages=2) as program:
            assert program.hear() == "ready"
            program.kill()
        held_back(other, 0, 4)
        successor = MessageQueue.create_from_handle(queue.export_handle(), 5)
        held_back(successor, 2, 4)
        for reader in (other, successor):
            reader.shutdown()


def test_a_program_is_told_by_name_and_can_pass_the_error_on() -> None:
    """A reader in a process of its own, which the writer's death reaches as a value that pickles."""
    program = (
        BEGIN
        + """
    queue = opened()
    say("ready")
    try:
        queue.dequeue()
    except aiospin.PeerDied as error:
        say(pickle.dumps(error).hex())
    queue.shutdown()
    """
    )
    with writing((4,)) as writer:
        with Program(program, {"handle": writer.hear(), "rank": 4}) as reader:
            assert reader.hear() == "ready"
            writer.kill()
            error = pickle.loads(bytes.fromhex(reader.hear()))
            assert (error.rank, error.pid) == (None, writer.pid)
            reader.finish()


def test_the_place_of_the_dead_is_free() -> None:
    with only_writer((5,)) as queue:
        with reading(queue, 5) as program:
            assert program.hear() == "ready"
            with pytest.raises(aiospin.RoleTaken) as caught:
                MessageQueue.create_from_handle(queue.export_handle(), 5)
            assert caught.value.pid == program.pid
            program.kill()
        segment = end(queue)._segment
        assert _roles.holder(segment, _layout.reader_role(0)) is None
        assert packed(queue.export_handle())
        MessageQueue.create_from_handle(queue.export_handle(), 5).shutdown()
