"""Native ends and pure-Python ends on one queue: the same bytes, the same bells, no wake lost between them.

The native side is this process, the other backend runs in a child, in either role. A wake that is lost would be found
by the re-check a second later: the fallback's is put off for an hour, and the native one is asked what it found.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import uvloop
from ends import LARGEST, RING, asleep, content, epoch, fill, size_of
from programs import OTHER, Program

import aiospin

pytestmark = [pytest.mark.native, pytest.mark.usefixtures("leaves_nothing")]


@pytest.fixture(scope="module", autouse=True)
def what_uvloop_opens_once() -> None:
    """The signal pipe of libuv is the process's, and no leak of a test."""
    uvloop.new_event_loop().close()


PREPARE = """
    import random
    from aiospin._fallback import waiting
    waiting._NAP = 3600.0
    assert aiospin.backend == arguments["backend"], aiospin.backend

    def dawdle(chance):
        "Around the time that the other side takes to fall asleep."
        for _ in range(chance.choice((0, 0, 10, 100, 1000, 3000))):
            pass
"""

ECHO = (
    PREPARE
    + """
    chance = random.Random(2)
    with aiospin.attach(arguments["there"]) as reader, aiospin.attach(arguments["back"]) as writer:
        for message in reader:
            dawdle(chance)
            writer.put(message)
        say([reader.statistics().parks, reader.statistics().rings, writer.statistics().rings])
"""
)


def dawdle(chance: random.Random) -> None:
    for _ in range(chance.choice((0, 0, 10, 100, 1000, 10_000))):
        pass


def unclaimed(end: Any) -> str:
    text = str(end.handle)
    end.close()
    return text


def late_rechecks(monkeypatch: pytest.MonkeyPatch, *ends: Any) -> list[bool]:
    """Grows by whether the end had something to do whenever its re-check looked: True is a wake that was lost."""
    found: list[bool] = []
    for end in ends:
        monkeypatch.setattr(end, "_recheck", lambda waited, end=end: found.append(end._ready()))
    return found


def test_the_other_backend_is_the_other_one() -> None:
    with Program("say([aiospin.backend])", backend=OTHER) as child:
        assert child.hear()[0] == OTHER == "fallback" and aiospin.backend == "native"
        child.finish()


@pytest.mark.parametrize("policy", ["eco", "balanced", "latency"])
def test_ping_pong_loses_no_wake(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rounds, chance = 3000, random.Random(1)
    there: aiospin.Queue[bytes]
    back: aiospin.Queue[bytes]
    with aiospin.Queue(capacity=RING, policy=policy) as there, aiospin.Queue(capacity=RING, policy=policy) as back:
        arguments = {"there": unclaimed(there.reader(0)), "back": unclaimed(back.writer()), "backend": OTHER}
        with Program(ECHO, arguments, backend=OTHER) as child, there.writer() as writer, back.reader(0) as reader:
            late = late_rechecks(monkeypatch, reader, writer)
            for sequence in range(rounds):
                writer.put(b"%d" % sequence)
                dawdle(chance)
                assert reader.get() == b"%d" % sequence
            bells = epoch(reader)
            parks = reader.statistics().parks
            writer.close()
            child_parks, _, child_rings = child.hear()
            child.finish()
            assert not any(late)
            # Every sleep of either side was ended by a bell, but for those that found something before they slept.
            assert child_rings <= bells + 1 and parks <= bells
            assert child_parks > 0


@pytest.mark.parametrize("checksum", [False, True], ids=["plain", "checksum"])
@pytest.mark.parametrize("writes", ["native", "fallback"])
def test_a_stream_of_every_size(writes: str, checksum: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of messages through a small ring: wraps, fragments, nothing at all, and both sides waiting in turn."""
    count = 3000
    write = (
        PREPARE
        + """
    with aiospin.attach(arguments["handle"]) as writer:
        chance = random.Random(3)
        for sequence in range(arguments["count"]):
            most = 2 * RING if sequence % 500 == 0 else LARGEST if sequence % 50 == 0 else 1500
            writer.put(content(sequence, size_of(sequence, most)))
            dawdle(chance)
        say("done")
"""
    )
    read = (
        PREPARE
        + """
    with aiospin.attach(arguments["handle"]) as reader:
        chance = random.Random(3)
        for sequence in range(arguments["count"]):
            most = 2 * RING if sequence % 500 == 0 else LARGEST if sequence % 50 == 0 else 1500
            with reader.acquire_read() as slot:
                assert slot.sequence == sequence, (slot.sequence, sequence)
                assert bytes(slot.data) == content(sequence, size_of(sequence, most)), sequence
            dawdle(chance)
        say("done")
"""
    )
    queue: aiospin.Queue[bytes]
    with aiospin.Queue(capacity=RING, checksum=checksum) as queue:
        other = unclaimed(queue.writer() if writes == "fallback" else queue.reader(0))
        arguments = {"handle": other, "count": count, "backend": OTHER}
        with Program(write if writes == "fallback" else read, arguments, backend=OTHER) as child:
            end: Any = queue.reader(0) if writes == "fallback" else queue.writer()
            late = late_rechecks(monkeypatch, end)
            with end:
                chance = random.Random(4)
                for sequence in range(count):
                    most = 2 * RING if sequence % 500 == 0 else LARGEST if sequence % 50 == 0 else 1500
                    message = content(sequence, size_of(sequence, most))
                    if writes == "fallback":
                        with end.acquire_read() as slot:
                            assert (slot.sequence, bytes(slot.data)) == (sequence, message)
                    else:
                        end.put(message)
                    dawdle(chance)
                assert child.hear() == "done"
            child.finish()
            assert not any(late)


def test_a_sleeping_fallback_reader_is_woken() -> None:
    program = (
        PREPARE
        + """
    with aiospin.attach(arguments["handle"]) as reader:
        while True:
            try:
                message = reader.get()
            except aiospin.QueueClosed:
                break
            say(message.decode())
"""
    )
    queue: aiospin.Queue[bytes]
    with aiospin.Queue(capacity=RING) as queue, queue.writer() as writer:
        reader = queue.reader(0)
        with Program(program, {"handle": str(reader.handle), "backend": OTHER}, backend=OTHER) as child:
            for number in range(200):
                asleep(reader, epoch(reader) - 1 if number else 0)
                writer.put(b"%d" % number)
                assert child.hear() == str(number)
            writer.close()
            child.finish()
        reader.close()


def test_a_sleeping_native_reader_is_woken(monkeypatch: pytest.MonkeyPatch) -> None:
    program = (
        PREPARE
        + """
    with aiospin.attach(arguments["handle"]) as writer:
        while (number := hear()) is not None:
            writer.put(b"%d" % number)
            say()
"""
    )
    queue: aiospin.Queue[bytes]
    with aiospin.Queue(capacity=RING) as queue, queue.reader(0) as reader, ThreadPoolExecutor(1) as pool:
        late = late_rechecks(monkeypatch, reader)
        handle = unclaimed(queue.writer())
        with Program(program, {"handle": handle, "backend": OTHER}, backend=OTHER) as child:
            for number in range(200):
                since = epoch(reader)
                getting = pool.submit(reader.get)
                asleep(reader, since)
                child.say(number)
                assert getting.result() == b"%d" % number
                child.hear()
        assert not any(late)


@pytest.mark.parametrize("writes", ["native", "fallback"])
def test_a_writer_asleep_on_a_full_ring_is_woken_by_the_other_backend(
    writes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue: aiospin.Queue[bytes]
    with aiospin.Queue(capacity=RING) as queue:
        if writes == "native":
            program = (
                PREPARE
                + """
    with aiospin.attach(arguments["handle"]) as reader:
        while (number := hear()) is not None:
            assert reader.get() == content(number, 1000)
            say(number)
"""
            )
            with queue.writer() as writer, ThreadPoolExecutor(1) as pool:
                late = late_rechecks(monkeypatch, writer)
                handle = unclaimed(queue.reader(0))
                with Program(program, {"handle": handle, "backend": OTHER}, backend=OTHER) as child:
                    count = fill(writer)
                    for number in range(100):
                        since = epoch(writer)
                        putting = pool.submit(writer.put, content(count + number, 1000))
                        asleep(writer, since)
                        child.say(number)
                        putting.result()
                        assert child.hear() == number
                assert not any(late)
            return
        program = (
            PREPARE
            + """
    with aiospin.attach(arguments["handle"]) as writer:
        count = fill(writer)
        say(count)
        for number in range(count, count + 100):
            writer.put(content(number, 1000))
        say("done")
"""
        )
        writer = queue.writer()
        with queue.reader(0) as reader:
            with Program(program, {"handle": str(writer.handle), "backend": OTHER}, backend=OTHER) as child:
                count = child.hear()
                for number in range(100):
                    asleep(writer, epoch(writer) - 1 if number else 0)
                    assert reader.get() == content(number, 1000)
                assert child.hear() == "done"
                for number in range(100, count + 100):
                    assert reader.get() == content(number, 1000)
                child.finish()
        writer.close()


def test_the_end_of_a_queue_reaches_the_other_backend() -> None:
    program = (
        PREPARE
        + """
    with aiospin.attach(arguments["handle"]) as end:
        if end.rank is None:
            fill(end)
        say()
        try:
            end.get() if end.rank is not None else end.put(bytes(1000))
        except aiospin.AiospinError as error:
            say(type(error).__name__)
"""
    )
    for ending in ("shutdown", "writer", "drop"):
        queue: aiospin.Queue[bytes]
        with aiospin.Queue(capacity=RING) as queue, queue.writer() as writer:
            reader = queue.reader(0)
            with Program(program, {"handle": str(reader.handle), "backend": OTHER}, backend=OTHER) as child:
                child.hear()
                asleep(reader)
                if ending == "shutdown":
                    queue.shutdown()
                elif ending == "writer":
                    writer.close()
                else:
                    writer.drop_reader(0, force=True)
                assert child.hear() == ("ReaderDropped" if ending == "drop" else "QueueClosed")
                child.finish()
            reader.close()
    with aiospin.Queue(capacity=RING) as queue, queue.reader(0) as _:
        writer = queue.writer()
        with Program(program, {"handle": str(writer.handle), "backend": OTHER}, backend=OTHER) as child:
            child.hear()
            asleep(writer)
            queue.shutdown()
            assert child.hear() == "QueueClosed"
            child.finish()
        writer.close()


def test_a_loop_on_one_side_and_a_thread_on_the_other(run_async: Callable[[Coroutine[Any, Any, None]], None]) -> None:
    """The awaited ladder in this process, the other backend's threads at the other end of both queues."""
    rounds, chance = 1500, random.Random(5)

    async def main(there: aiospin.Queue[bytes], back: aiospin.Queue[bytes]) -> None:
        async with there.writer() as writer, back.reader(0) as reader:
            for sequence in range(rounds):
                await writer.aput(b"%d" % sequence)
                dawdle(chance)
                assert await reader.aget() == b"%d" % sequence
            counted = reader.statistics()
            assert counted.read == rounds and counted.parks + counted.monitor + counted.inline > 0

    with aiospin.Queue[bytes](capacity=RING) as there, aiospin.Queue[bytes](capacity=RING) as back:
        arguments = {"there": unclaimed(there.reader(0)), "back": unclaimed(back.writer()), "backend": OTHER}
        with Program(ECHO, arguments, backend=OTHER) as child:
            run_async(main(there, back))
            assert child.hear()[0] > 0
            child.finish()
