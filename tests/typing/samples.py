"""What the types of the public API say, for mypy and pyright: this file is checked and never run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

from typing_extensions import assert_type

import aiospin


def ends_of_a_queue(queue: aiospin.Queue[bytes]) -> None:
    assert_type(queue.reader(0), aiospin.QueueReader[bytes])
    assert_type(queue.writer(threadsafe=True), aiospin.QueueWriter[bytes])
    assert_type(queue.statistics(), aiospin.Statistics)
    assert_type(queue.statistics().lag, tuple[int | None, ...])
    assert_type(queue.capacity, int)
    assert_type(iter(queue), Iterator[bytes])
    assert_type(str(queue.reader(0).handle), str)
    assert_type(queue.reader(0).handle, aiospin.Handle)
    with queue as entered:
        assert_type(entered, aiospin.Queue[bytes])


def a_reader(reader: aiospin.QueueReader[bytes]) -> None:
    slot = reader.try_acquire_read()
    assert_type(slot, aiospin.ReadSlot | None)
    with reader.acquire_read(timeout=1.0) as lease:
        assert_type(lease, aiospin.ReadSlot)
        assert_type(lease.data, memoryview)
        assert_type(lease.sequence, int)
        assert_type(lease.redelivered, bool)
        assert_type(len(lease), int)
    assert_type(iter(reader), Iterator[bytes])
    assert_type(reader.arm(), bool)
    assert_type(reader.fileno(), int)
    assert_type(reader.rank, int | None)
    assert_type(reader.closed, bool)


async def a_reader_in_a_loop(reader: aiospin.QueueReader[bytes]) -> None:
    assert_type(await reader.acquire_read(), aiospin.ReadSlot)
    async with reader.acquire_read() as slot:
        assert_type(slot, aiospin.ReadSlot)
    async for message in reader:
        assert_type(message, bytes)
    async for lease in reader.slots():
        assert_type(lease, aiospin.ReadSlot)
    assert_type(reader.slots(), AsyncIterator[aiospin.ReadSlot])
    task = asyncio.ensure_future(reader.acquire_read())
    assert_type(await task, aiospin.ReadSlot)


def a_writer(writer: aiospin.QueueWriter[bytes]) -> None:
    assert_type(writer.try_acquire_write(10), aiospin.WriteSlot | None)
    with writer.acquire_write(10) as slot:
        assert_type(slot, aiospin.WriteSlot)
        slot.data[:5] = b"hello"
        slot.truncate(5)


async def a_writer_in_a_loop(writer: aiospin.QueueWriter[bytes]) -> None:
    assert_type(await writer.acquire_write(10), aiospin.WriteSlot)
    async with writer.acquire_write(10) as slot:
        assert_type(slot, aiospin.WriteSlot)
    await writer.aput(b"head", b"body", timeout=1.0)
    await writer.aput_many([b"a", b"b"])


def errors(died: aiospin.PeerDied, taken: aiospin.RoleTaken, large: aiospin.SegmentTooLarge) -> None:
    assert_type(died.rank, int | None)
    assert_type(died.pid, int)
    assert_type(taken.pid, int)
    assert_type(large.limit, int)


def attaching(text: str, handle: aiospin.Handle) -> None:
    end = aiospin.attach(text, policy="latency")
    if isinstance(end, aiospin.QueueWriter):
        end.put(b"x")
    else:
        end.get()
    assert_type(aiospin.Handle.parse(text), aiospin.Handle)


def policies(policy: aiospin.WaitPolicy) -> None:
    assert_type(policy.replace(maximum_us=50.0), aiospin.WaitPolicy)
    aiospin.Queue[bytes](policy=policy, readers=2, capacity="16 MiB")


def waiting(reader: aiospin.QueueReader[Any], writer: aiospin.QueueWriter[Any]) -> None:
    with aiospin.WaitSet([reader]) as waits:
        waits.add(writer)
        for member in waits.wait_sync(timeout=1.0):
            if isinstance(member, aiospin.QueueReader):
                member.get_nowait()
    aiospin.wait_any(reader, writer, timeout=0)
