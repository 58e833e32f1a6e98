"""One operation, so many times: what `.ci/counts` runs under callgrind.

    python tests/counts/operations.py "put and get" 1000

Guarantee: nothing that depends on a clock happens in between: no collection, no wait, no turn for the loop. Two runs
that differ in the number alone differ by the instructions of that many operations, but for the clock's calibration.
"""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Callable, Coroutine
from itertools import repeat
from typing import Any

import uvloop

import aiospin
from aiospin import _native

MESSAGE = bytes(64)
BATCH = 64
"""messages of one call of the operations on many"""

Ends = tuple["aiospin.QueueWriter[bytes]", "aiospin.QueueReader[bytes]"]


def no_op(ends: Ends, count: int) -> None:
    call = gc.isenabled
    for _ in repeat(None, count):
        call()


def try_in_vain(ends: Ends, count: int) -> None:
    try_acquire_read = ends[1].try_acquire_read
    for _ in repeat(None, count):
        try_acquire_read()


def put_get(ends: Ends, count: int) -> None:
    put, get = ends[0].put, ends[1].get
    for _ in repeat(None, count):
        put(MESSAGE)
        get()


def put_read(ends: Ends, count: int) -> None:
    put, acquire_read = ends[0].put, ends[1].acquire_read
    for _ in repeat(None, count):
        put(MESSAGE)
        with acquire_read():
            pass


def put_many_get_many(ends: Ends, count: int) -> None:
    put_many, get_many = ends[0].put_many, ends[1].get_many
    messages = [MESSAGE] * BATCH
    for _ in repeat(None, count // BATCH):
        put_many(messages)
        get_many(BATCH)


async def put_aget(ends: Ends, count: int) -> None:
    put, aget = ends[0].put, ends[1].aget
    for _ in repeat(None, count):
        put(MESSAGE)
        await aget()


async def put_read_awaited(ends: Ends, count: int) -> None:
    put, acquire_read = ends[0].put, ends[1].acquire_read
    for _ in repeat(None, count):
        put(MESSAGE)
        (await acquire_read()).release()


OPERATIONS: dict[str, Callable[[Ends, int], Coroutine[Any, Any, None] | None]] = {
    "a call that does nothing": no_op,
    "try_acquire_read() of an empty queue": try_in_vain,
    "put() and get()": put_get,
    "put() and a lease": put_read,
    "put() and await aget()": put_aget,
    "put() and await acquire_read(), release()": put_read_awaited,
    "put_many() and get_many(), each message": put_many_get_many,
}


def main(name: str, count: int) -> None:
    gc.disable()
    with aiospin.Queue[bytes](capacity="64 KiB") as queue, queue.writer() as writer, queue.reader(0) as reader:
        writer.put(MESSAGE)
        reader.get()
        _native.give_no_turns()
        done = OPERATIONS[name]((writer, reader), count)
        if done is not None:
            with contextlib.closing(uvloop.new_event_loop()) as loop:
                loop.run_until_complete(done)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
