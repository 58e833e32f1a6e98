"""Scenarios about how the ends behave: time-outs, shutdown, roles, handles, raw chunks, the wait as a function.

Guarantee: a scenario returns if all was as it should be, and raises what was wrong; both sides play the same lines.
Assumption: `peers_play` runs one scenario a process, and somebody bounds its time.
"""

from __future__ import annotations

import functools
import pickle
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from peers_events import waits
from peers_link import SPAWN, Link, Part
from peers_sides import OURS, SIDES, Side

MIB = 1 << 20
GRAIN = 0.002
"""seconds that a time-out may be early, for those who count it in milliseconds"""


def raised(call: Callable[[], Any], *kinds: type[BaseException]) -> BaseException:
    """Return what `call` raised. AssertionError if it was none of these."""
    try:
        result = call()
    except kinds as error:
        return error
    raise AssertionError(f"{kinds[0].__name__} was due, and {result!r} was returned")


def collect_until(part: Part, last: Any) -> list[Any]:
    """Return the numbers of what comes before `last`."""
    numbers = []
    while (message := part.reading[-1].dequeue()) != last:
        numbers.append(message[0])
    return numbers


def enqueue_times_out(side: Side) -> None:
    """A full queue: enqueue raises TimeoutError, in time and not before; nothing of that message is sent."""
    with Link(side) as link:
        queue = link.open(max_chunk_bytes=MIB, max_chunks=2)
        waits()
        for number in range(30):
            began = time.monotonic()
            try:
                queue.enqueue((number, bytes(900_000)), timeout=0.25)
            except TimeoutError:
                break
        else:
            raise AssertionError("30 messages of 900,000 bytes fit into two chunks of 1 MiB")
        assert time.monotonic() - began >= 0.25 - GRAIN, "it was raised too early"
        raised(lambda: queue.enqueue((99, bytes(900_000)), timeout=0), TimeoutError)
        link.order("peers_manners:collect_until", "end")
        queue.enqueue((number + 1, b""), timeout=30)
        queue.enqueue("end", timeout=30)
        got = link.answer()
        assert got == [*range(number), number + 1], f"the reader got {got!r}"


def dequeue_times_out(side: Side) -> None:
    """An empty queue: dequeue raises TimeoutError, in time and not before; what comes later is received."""
    with Link(side) as link:
        queue = link.open_back(max_chunk_bytes=MIB)
        waits()
        for timeout in (0.25, 0.25, 0):
            began = time.monotonic()
            raised(functools.partial(queue.dequeue, timeout=timeout), TimeoutError)
            assert time.monotonic() - began >= timeout - GRAIN, "it was raised too early"
        link.order("peers_contents:feed", 3, "late")
        got = [queue.dequeue(timeout=30) for _ in range(3)]
        assert got == [("late", 0), ("late", 1), ("late", 2)], f"the reader got {got!r}"
        link.answer()


def _shutdown_after(side: Side, seconds: float) -> None:
    with Link(side) as link:
        queue = link.open_back(max_chunk_bytes=MIB)
        link.order("peers_contents:feed", 1, "first")
        assert queue.dequeue() == ("first", 0)
        link.answer()
        timer = threading.Timer(seconds, queue.shutdown)
        timer.start()
        waits()
        error = raised(queue.dequeue, RuntimeError)
        assert str(error) == "cancelled", f"RuntimeError({str(error)!r})"
        timer.join()


def shutdown_soon(side: Side) -> None:
    """shutdown() from another thread, 0.2 s after a dequeue began to wait: RuntimeError("cancelled")."""
    _shutdown_after(side, 0.2)


def shutdown_late(side: Side) -> None:
    """The same 2 s after, when theirs waits at a socket."""
    _shutdown_after(side, 2.0)


def wrong_role(side: Side) -> None:
    """A reader that writes, a writer that reads: AssertionError."""
    with Link(side) as link:
        writer, reader = link.open(max_chunk_bytes=MIB), link.open_back(max_chunk_bytes=MIB)
        waits()
        raised(lambda: reader.enqueue(1), AssertionError)
        raised(lambda: reader.acquire_write().__enter__(), AssertionError)
        raised(lambda: writer.acquire_read().__enter__(), AssertionError)
        raised(writer.dequeue, AssertionError, RuntimeError)


def read_one(side: str, handle: Any, rank: int, pipe: Connection) -> None:
    """Attach to what came as an argument, and send on what is received."""
    queue = SIDES[side].attach(handle, rank)
    queue.wait_until_ready()
    pipe.send(queue.dequeue())


def handles(side: Side) -> None:
    """A handle as an argument of a spawned process; through pickle; its fields."""
    queue = side.make(1, 1, [3], max_chunk_bytes=MIB)
    handle = queue.export_handle()
    copy = pickle.loads(pickle.dumps(handle))
    assert copy == handle, f"{handle!r} became {copy!r}"
    for name in ("local_reader_ranks", "buffer_handle", "remote_subscribe_addr", "remote_addr_ipv6"):
        assert hasattr(handle, name), f"there is no {name}"
    assert handle.local_reader_ranks == [3]
    ours, end = SPAWN.Pipe()
    child = SPAWN.Process(target=read_one, args=(side.name, handle, 3, end))
    child.start()
    waits()
    queue.wait_until_ready()
    queue.enqueue({"by": "argument"})
    got = ours.recv()
    assert got == {"by": "argument"}, f"it got {got!r}"
    child.join()


def take_raw(part: Part, count: int) -> list[tuple[int, bytes, int]]:
    """Read chunks in place: length, the beginning, the last byte. The second one's body raises."""
    found = []
    for number in range(count):
        try:
            with part.reading[-1].acquire_read() as chunk:
                found.append((len(chunk), bytes(chunk[:5]), chunk[-1]))
                if number == 1:
                    raise LookupError("the reader's own")
        except LookupError:
            pass
    return found


def raw_chunks(side: Side) -> None:
    """acquire_write and acquire_read: whole chunks; a body that raises sends nothing, or gives the chunk back."""
    with Link(side) as link:
        queue = link.open(max_chunk_bytes=MIB, max_chunks=2)
        link.order("peers_manners:take_raw", 6)
        waits()
        for number in range(6):
            if number == 3:
                try:
                    with queue.acquire_write(timeout=30) as chunk:
                        chunk[:5] = b"never"
                        raise LookupError("the writer's own")
                except LookupError:
                    pass
            with queue.acquire_write(timeout=30) as chunk:
                assert len(chunk) == MIB, f"acquire_write gives {len(chunk)} bytes"
                chunk[:5] = b"raw-%d" % number
                chunk[-1] = number
        got = link.answer()
        expected = [(MIB, b"raw-%d" % number, number) for number in range(6)]
        assert got == expected, f"it got {got!r}"


def spinloop(side: Side) -> None:
    """spinloop(buffer, callback, timeout): what it returns; 20,000 calls cost nobody a reference."""
    if side is OURS:
        from aiospin.compat.vllm import spinloop as spin
    else:
        from importlib import import_module

        import theirs

        theirs.load()
        spin = import_module("vllm.spinloop").spinloop
    buffer = bytearray(8)
    waits()
    assert spin(buffer, lambda: True, timeout=1.0) is True, "it did not return True"
    assert spin(buffer, lambda: False, timeout=0.01) is False, "it did not time out with False"
    answers = iter([False, False, True])
    assert spin(buffer, lambda: next(answers), timeout=0.0) is True, "0.0 is no limit"
    before = sys.getrefcount(True), sys.getrefcount(False)
    for _ in range(20_000):
        spin(buffer, lambda: True, timeout=1.0)
    lost = before[0] - sys.getrefcount(True)
    assert abs(lost) < 1000, f"20,000 calls take {lost} references of True: before Python 3.12 the process aborts"
