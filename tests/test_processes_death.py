"""Processes killed in any state: who hears of it, once each, and how a successor goes on."""

from __future__ import annotations

import gc
import pickle
import signal
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from ends import RING, asleep, content, ends, fill, size_of, until, watching
from programs import Program

import aiospin
from aiospin import _layout, _roles

pytestmark = pytest.mark.usefixtures("leaves_nothing")

WRITER = """
    writer = aiospin.attach(arguments["handle"])
    writer.__enter__()
    sequence = arguments.get("first", 0)
    for _ in range(arguments["messages"]):
        writer.put(content(sequence, 500))
        sequence += 1
    if arguments.get("claims"):
        claim = writer.try_acquire_write(100)
        claim.data[:] = bytes(100)
    say("ready")
    hear()
"""

READER = """
    reader = aiospin.attach(arguments["handle"])
    reader.__enter__()
    got = [reader.get() for _ in range(arguments["messages"])]
    held = [reader.try_acquire_read() for _ in range(arguments.get("holds", 0))]
    say("ready")
    hear()
"""


def handle_of(end: Any) -> str:
    """The text of an unclaimed end's handle; the end itself is not needed any more."""
    text = str(end.handle)
    end.close()
    return text


@pytest.mark.parametrize("claims", [False, True], ids=["between_messages", "inside_a_slot"])
def test_readers_drain_then_hear_of_the_writers_death_once(claims: bool) -> None:
    queue: aiospin.Queue[bytes]
    with aiospin.Queue(readers=2, capacity=RING) as queue, queue.reader(0) as first, queue.reader(1) as second:
        handle = handle_of(queue.writer())
        with Program(WRITER, {"handle": handle, "messages": 3, "claims": claims}) as child:
            assert child.hear() == "ready"
            child.kill()
            for reader in (first, second):
                assert [reader.get() for _ in range(3)] == [content(sequence, 500) for sequence in range(3)]
                with pytest.raises(aiospin.PeerDied) as caught:
                    reader.get()
                assert (caught.value.rank, caught.value.pid) == (None, child.pid)
                assert str(child.pid) in str(caught.value) and "writer" in str(caught.value)
                with pytest.raises(TimeoutError):  # once per death; then it waits for a successor
                    reader.get(timeout=0.01)
        with Program(WRITER, {"handle": handle, "messages": 3, "first": 3}) as successor:
            assert successor.hear() == "ready"
            for reader in (first, second):
                for sequence in range(3, 6):
                    with reader.acquire_read() as slot:
                        assert (slot.sequence, bytes(slot.data)) == (sequence, content(sequence, 500))
            successor.say()
            successor.wait()


def test_a_death_wakes_a_sleeping_reader() -> None:
    """The pidfd tells: natively and in the fallback the wait ends although nobody rings."""
    queue: aiospin.Queue[bytes]
    with aiospin.Queue(capacity=RING) as queue, queue.reader(0) as reader, ThreadPoolExecutor(1) as pool:
        with Program(WRITER, {"handle": handle_of(queue.writer()), "messages": 0}) as child:
            assert child.hear() == "ready"
            getting = pool.submit(reader.get)
            watching(child.pid)  # a sleep is announced before the first look at who is there
            child.kill()
            with pytest.raises(aiospin.PeerDied) as caught:
                getting.result()
            assert caught.value.noticed == pickle.loads(pickle.dumps(caught.value)).noticed == "pidfd"


@pytest.mark.parametrize("holds", [0, 2])
def test_a_writer_hears_of_a_readers_death_and_a_successor_finds_its_place(holds: int) -> None:
    queue: aiospin.Queue[bytes]
    with aiospin.Queue(readers=2, capacity=RING) as queue, queue.writer() as writer, queue.reader(1) as other:
        reader = queue.reader(0)
        writer.put_many([content(sequence, 1000) for sequence in range(10)])
        with Program(READER, {"handle": handle_of(reader), "messages": 4, "holds": holds}) as child:
            assert child.hear() == "ready"
            count = fill(writer, sequence=10)
            other.get_many(1000)
            count = fill(writer, sequence=count)  # now only the rank that will die is in the way
            child.kill()
            with pytest.raises(aiospin.PeerDied) as caught:
                writer.put(content(count, 1000))
            assert (caught.value.rank, caught.value.pid) == (0, child.pid)
            assert "reader 0" in str(caught.value)
            with pytest.raises(TimeoutError):
                writer.put(content(count, 1000), timeout=0.01)
        with queue.reader(0) as successor, ThreadPoolExecutor(1) as pool:
            putting = pool.submit(writer.put, content(count, 1000))
            for sequence in range(4, count + 1):
                with successor.acquire_read() as slot:
                    assert bytes(slot.data) == content(sequence, 1000)
                    assert slot.redelivered == (sequence < 4 + holds)
            putting.result()


def test_a_dead_reader_can_be_dropped_without_force() -> None:
    queue: aiospin.Queue[bytes]
    with aiospin.Queue(readers=2, capacity=RING) as queue, queue.writer() as writer, queue.reader(1) as other:
        handle = handle_of(queue.reader(0))
        with Program(READER, {"handle": handle, "messages": 0}) as child:
            assert child.hear() == "ready"
            with pytest.raises(ValueError, match=f"reader 0 is alive .pid {child.pid}."):
                writer.drop_reader(0)
            child.kill()
        writer.drop_reader(0)
        for sequence in range(200):
            writer.put(content(sequence, 1000))
            assert other.get() == content(sequence, 1000)
        with queue.reader(0) as successor:
            assert successor.try_acquire_read() is None
            writer.put(b"after the join")
            assert successor.get() == b"after the join"


def test_a_dropped_reader_in_another_process_is_told() -> None:
    program = """
        with aiospin.attach(arguments) as reader:
            say("ready")
            try:
                reader.get()
            except aiospin.ReaderDropped as error:
                say(str(error))
    """
    queue: aiospin.Queue[bytes]
    with aiospin.Queue(capacity=RING) as queue, queue.writer() as writer:
        reader = queue.reader(0)
        with Program(program, str(reader.handle)) as child:
            assert child.hear() == "ready"
            asleep(reader)
            writer.drop_reader(0, force=True)
            assert "reader 0" in child.hear()
            child.finish()
        reader.close()


def test_waiting_for_a_successor_instead_of_an_error() -> None:
    queue: aiospin.Queue[bytes]
    with aiospin.Queue(capacity=RING, on_peer_death="wait") as queue, queue.reader(0) as reader:
        handle = handle_of(queue.writer())
        with ThreadPoolExecutor(1) as pool:
            for first in (0, 1, 2):
                getting = pool.submit(reader.get)
                asleep(reader)
                with Program(WRITER, {"handle": handle, "messages": 1, "first": first}) as child:
                    assert child.hear() == "ready"
                    assert getting.result() == content(first, 500)
                    getting = pool.submit(reader.get)
                    child.kill()
                    until(lambda: _roles.holder(queue._segment, _layout.WRITER) is None)  # type: ignore[arg-type]
                    assert not getting.done()
                with queue.writer() as between:
                    between.put(b"from between")
                    assert getting.result() == b"from between"
                    between.detach()


def test_writers_killed_anywhere_leave_a_stream_without_gap_or_repeat() -> None:
    """Killed in the middle of whatever it did; the next one goes on where the last published message ended."""
    program = """
        writer = aiospin.attach(arguments)
        writer.__enter__()
        sequence = writer._sequence
        say("ready")
        while True:
            writer.put(b"%d " % sequence, content(sequence, size_of(sequence, 2000 if sequence % 20 else 2 * RING)))
            sequence += 1
    """
    queue: aiospin.Queue[bytes]
    with aiospin.Queue(capacity=RING, checksum=True) as queue, queue.reader(0) as reader:
        handle = handle_of(queue.writer())
        expected = deaths = 0
        for life in range(12):
            with Program(program, handle) as child:
                assert child.hear() == "ready"
                wanted = expected + 7 * life + 1
                while True:
                    try:
                        with reader.acquire_read() as slot:
                            assert slot.sequence == expected
                            size = size_of(expected, 2000 if expected % 20 else 2 * RING)
                            assert bytes(slot.data) == b"%d " % expected + content(expected, size)
                            expected += 1
                            if expected == wanted:
                                child.signal(signal.SIGKILL)
                    except aiospin.PeerDied as died:
                        assert died.pid == child.pid
                        deaths += 1
                        break
        assert deaths == 12 and expected > 12


def test_readers_killed_anywhere_lose_nothing() -> None:
    """What a killed reader had acknowledged to the test is never seen again; all the rest is, in order."""
    program = """
        with aiospin.attach(arguments) as reader:
            while True:
                with reader.acquire_read() as slot:
                    assert bytes(slot.data) == content(slot.sequence, size_of(slot.sequence, 2000))
                    say(slot.sequence)
    """
    queue: aiospin.Queue[bytes]
    with aiospin.Queue(capacity=RING, on_peer_death="wait") as queue, queue.writer() as writer:
        handle = handle_of(queue.reader(0))
        stop: list[int] = []

        def write() -> int:
            sequence = 0
            while not stop:  # without an end, since a reader may run far ahead of what the test has heard
                writer.put(content(sequence, size_of(sequence, 2000)))
                sequence += 1
            return sequence

        with ThreadPoolExecutor(1) as pool:
            writing = pool.submit(write)
            seen = -1
            for life in range(8):
                with Program(program, handle) as child:
                    first = child.hear()
                    assert first in (seen, seen + 1), "at most the slot in hand comes twice"
                    for number in range(first, first + 5 * life):
                        assert child.hear() == number + 1
                    child.kill()
                    seen = child.last_heard()
            stop.append(1)
            with queue.reader(0) as last:
                with last.acquire_read() as slot:
                    assert slot.sequence in (seen, seen + 1)
                    seen = slot.sequence
                total = None
                while seen + 1 != total:
                    if writing.done():
                        total = writing.result()
                    message = last.acquire_read(timeout=0.01)
                    try:
                        with message as slot:
                            seen += 1
                            assert slot.sequence == seen
                            assert bytes(slot.data) == content(seen, size_of(seen, 2000))
                    except TimeoutError:
                        continue


def test_an_end_that_is_never_closed_is_a_death_to_its_peers() -> None:
    with ends() as (queue, writer, (reader,)):
        forgotten = queue.reader(0)
        writer.put(b"x")
        assert forgotten.get() == b"x"
        with pytest.warns(ResourceWarning, match="never closed"):
            del forgotten
            gc.collect()
        fill(writer)
        with pytest.raises(aiospin.PeerDied) as caught:
            writer.put(bytes(1000))
        assert caught.value.rank == 0
        assert reader.get() == content(0, 1000)


def test_an_orderly_end_is_no_death() -> None:
    program = """
        with aiospin.attach(arguments) as reader:
            say(reader.get().decode())
    """
    queue: aiospin.Queue[bytes]
    with aiospin.Queue(readers=2, capacity=RING) as queue, queue.writer() as writer, queue.reader(1) as other:
        with Program(program, handle_of(queue.reader(0))) as child:
            writer.put(b"hello")
            assert child.hear() == "hello" and other.get() == b"hello"
            child.finish()
        for sequence in range(200):
            writer.put(content(sequence, 1000))
            assert other.get() == content(sequence, 1000)
