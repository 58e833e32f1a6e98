"""Ends that nobody closed: exit at any point is quiet, failed constructors leave nothing, close is idempotent."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop
from ends import RING, ends
from forked import open_descriptors
from programs import Program

import aiospin

pytestmark = pytest.mark.usefixtures("leaves_nothing")


@pytest.fixture(scope="module", autouse=True)
def what_uvloop_opens_once() -> None:
    """The signal pipe of libuv is the process's, and no leak of a test."""
    uvloop.new_event_loop().close()


SET_UP = """
    import asyncio, atexit, gc, linecache, sys, threading, tracemalloc
    queue = aiospin.Queue(readers=2, capacity=RING)
    writer, reader, other = queue.writer(), queue.reader(0), queue.reader(1)
"""

EXITS = {
    "nothing_was_used": "",
    "everything_is_open": """
    writer.put(b"x"); reader.get(); other.get()
""",
    "a_slot_is_held": """
    writer.put(b"x"); slot = reader.acquire_read().__enter__()
""",
    "views_are_alive": """
    import numpy
    writer.put(b"x" * 100); slot = reader.acquire_read().__enter__()
    view = slot.data[5:]; array = numpy.frombuffer(slot.data, numpy.uint8)
""",
    "a_claim_is_outstanding": """
    claim = writer.try_acquire_write(100)
""",
    "a_large_claim_is_outstanding": """
    claim = writer.try_acquire_write(3 * RING)
""",
    "an_operation_was_closed": """
    operation = reader.acquire_read(); operation.close()
""",
    "in_a_cycle": """
    writer.put(b"x"); cycle = [queue, writer, reader, reader.acquire_read().__enter__()]; cycle.append(cycle)
    del queue, writer, reader
""",
    "inside_with": """
    with queue, writer, reader:
        writer.put(b"x")
        with reader.acquire_read() as slot:
            sys.exit(0)
""",
    "a_daemon_thread_sleeps_in_get": """
    threading.Thread(target=reader.get, daemon=True).start(); asleep(reader)
""",
    "a_daemon_thread_sleeps_in_put": """
    fill(writer); threading.Thread(target=writer.put, args=(bytes(1000),), daemon=True).start(); asleep(writer)
""",
    "a_daemon_thread_is_woken_while_the_interpreter_ends": """
    class Late:
        def __init__(self):
            self.bell, self.write, self.poll = reader._own_bell, os.write, __import__("select").select
        def __del__(self):
            self.write(self.bell, b"x")
            self.poll([], [], [], 0.2)
    reader.__enter__(); sys.late = Late()
    threading.Thread(target=reader.get, daemon=True).start(); asleep(reader)
""",
    "a_daemon_thread_writes_all_the_time": """
    reader.close(); other.close()
    def write():
        while True: writer.put(bytes(100))
    threading.Thread(target=write, daemon=True).start(); until(lambda: writer._opened and writer._cursor > 10000)
""",
    "a_task_was_waiting": """
    async def main():
        tasks = [asyncio.ensure_future(end.aget()) for end in (reader, other)]
        await asyncio.sleep(0.01)
    asyncio.run(main())
""",
    "a_loop_was_left_open": """
    async def main():
        try: await reader.aget(timeout=0.01)
        except TimeoutError: pass
    loop = asyncio.new_event_loop(); loop.run_until_complete(main())
""",
    "a_daemon_thread_runs_a_loop": """
    async def main(): await reader.aget()
    threading.Thread(target=lambda: asyncio.run(main()), daemon=True).start(); asleep(reader)
""",
    "a_wait_set_is_open": """
    waits = aiospin.WaitSet([reader, other])
    try: waits.wait_sync(timeout=0.001)
    except TimeoutError: pass
""",
    "closed_at_exit": """
    writer.put(b"x"); slot = reader.acquire_read().__enter__()
    for end in (slot.release, reader.close, writer.close, queue.close): atexit.register(end)
""",
    "used_at_exit": """
    atexit.register(lambda: print(reader.get().decode(), file=open(os.devnull, "w"))); writer.put(b"x")
""",
    "the_names_of_all_modules_are_gone_first": """
    writer.put(b"x"); slot = reader.acquire_read().__enter__(); claim = writer.try_acquire_write(100)
    waits = aiospin.WaitSet([other]); word = aiospin.lowlevel.Word(bytearray(8), "==", 0)
    loop = asyncio.new_event_loop()
    try: loop.run_until_complete(other.aget(timeout=0.001))
    except TimeoutError: pass
    import math
    math.kept = main = sys.modules["__main__"]  # whose names are then the last to go
    main.kept = [queue, writer, reader, other, slot, claim, waits, word, loop]
""",
    "the_module_is_gone_first": """
    writer.put(b"x"); slot = reader.acquire_read().__enter__(); sys.kept = [queue, writer, reader, slot]
    for name in [name for name in sys.modules if name.startswith("aiospin")]: del sys.modules[name]
""",
}


@pytest.mark.parametrize("state", EXITS)
def test_the_interpreter_ends_quietly(state: str) -> None:
    with Program(SET_UP + EXITS[state], warnings=None) as child:
        child.finish()


def test_an_exit_by_exception_shows_that_exception_only() -> None:
    program = (
        SET_UP
        + """
    writer.put(b"x")
    with queue, reader, reader.acquire_read() as slot:
        view = slot.data
        raise SystemExit(3)
"""
    )
    with Program(program, warnings=None) as child:
        assert (child.wait(), child.complaints()) == (3, "")


def test_leaks_are_told_to_who_asks() -> None:
    program = (
        SET_UP
        + """
    writer.put(b"x"); reader.get()
    del writer, reader, queue
    gc.collect()
    say()
"""
    )
    with Program(program, warnings="default") as child:
        child.hear()
        assert child.wait() == 0
        complaints = child.complaints()
        assert complaints.count("was never closed") == 3 and "Traceback" not in complaints
        for text in ("QueueWriter writer", "QueueReader reader 0", "<Queue"):
            assert text in complaints
    with Program(program, warnings=None) as child:
        child.hear()
        child.finish()


@pytest.mark.parametrize(
    "options",
    [
        {"capacity": -1},
        {"capacity": "x"},
        {"capacity": 2**60},
        {"readers": -1},
        {"codec": "none"},
        {"policy": "none"},
        {"on_peer_death": "none"},
        {"stall_after": -1},
        {"name": "a/b"},
        {"directory": "/nonexistent/aiospin"},
        {"unknown": 1},
    ],
    ids=lambda options: "_".join(map(str, options)),
)
def test_a_failed_constructor_leaves_no_half_object(options: dict[str, Any]) -> None:
    """Any `__del__` that fails is an error of this test."""
    before = open_descriptors()
    with pytest.raises((ValueError, TypeError, OSError, aiospin.AiospinError)):
        aiospin.Queue(**options)
    gc.collect()
    assert open_descriptors() == before


@pytest.mark.parametrize("kind", [aiospin.Queue, aiospin.QueueReader, aiospin.QueueWriter, aiospin.WaitSet])
def test_an_object_that_was_never_initialised_goes_quietly(kind: type) -> None:
    made = kind.__new__(kind)
    del made
    gc.collect()


def test_closing_twice_in_every_order() -> None:
    for order in itertools.permutations(range(4)):
        queue: aiospin.Queue[bytes] = aiospin.Queue(capacity=RING)
        writer, reader, idle = queue.writer(), queue.reader(0), queue.writer()
        writer.put(b"x")
        assert reader.get() == b"x"
        everything = [queue, writer, reader, idle]
        for number in (*order, *order):
            everything[number].close()
        for end in (writer, reader, idle):
            end.detach()
            assert end.closed


def test_closing_in_a_loop(run_async: Callable[[Coroutine[Any, Any, None]], None]) -> None:
    async def main() -> None:
        with ends() as (queue, writer, (reader,)):
            for _ in range(2):
                await reader.aclose()
                await writer.aclose()
                await queue.aclose()

    run_async(main())


def test_a_leak_gives_everything_back_even_where_its_warning_is_an_error() -> None:
    program = """
        import gc, linecache, tracemalloc
        before = set(os.listdir("/proc/self/fd"))
        sys.unraisablehook = lambda unraisable: say(str(unraisable.exc_value))
        queue = aiospin.Queue(capacity=RING)
        writer, reader = queue.writer(), queue.reader(0)
        writer.put(b"x"); reader.get()
        del writer, reader, queue
        gc.collect()
        say(sorted(set(os.listdir("/proc/self/fd")) - before))
    """
    with Program(program) as child:
        assert len({child.hear() for _ in range(3)}) == 3
        assert child.hear() == []
        child.finish()


def test_a_closed_end_still_says_what_it_is() -> None:
    with ends() as (_, writer, (reader,)):
        for end, role in ((writer, "writer"), (reader, "reader 0")):
            end.close()
            assert end.role_name == role and "closed" in repr(end) and str(end.handle)


def test_ends_keep_working_when_the_queue_object_is_forgotten() -> None:
    queue: aiospin.Queue[bytes] = aiospin.Queue(capacity=RING)
    writer, reader = queue.writer(), queue.reader(0)
    with pytest.warns(ResourceWarning, match="Queue"):
        del queue
        gc.collect()
    with writer, reader:
        writer.put(b"x")
        assert reader.get() == b"x"
