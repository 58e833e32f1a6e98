"""Every way into a slot, and every way out by an exception: the slot is back, and the exception is the one raised."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from ends import content, ends, fill

import aiospin

pytestmark = pytest.mark.usefixtures("leaves_nothing")


class Broken(Exception):
    """What the body of a block raises."""


OUT: list[type[BaseException]] = [Broken, asyncio.CancelledError, KeyboardInterrupt, GeneratorExit, BufferError]


async def by_with(acquire: Any, at_once: Any, raised: BaseException) -> None:
    with acquire() as slot:
        assert len(slot.data) == 1000
        raise raised


async def by_with_at_once(acquire: Any, at_once: Any, raised: BaseException) -> None:
    with at_once() as slot:
        assert len(slot.data) == 1000
        raise raised


async def by_async_with(acquire: Any, at_once: Any, raised: BaseException) -> None:
    async with acquire() as slot:
        assert len(slot.data) == 1000
        raise raised


async def by_with_await(acquire: Any, at_once: Any, raised: BaseException) -> None:
    with await acquire() as slot:
        assert len(slot.data) == 1000
        raise raised


IN = [by_with, by_with_at_once, by_async_with, by_with_await]


async def leave(way: Callable[..., Any], acquire: Any, at_once: Any, out: type[BaseException]) -> None:
    """Go in, and out by a new exception, which must come out as it is, with nothing before it."""
    raised = out("mine")
    with pytest.raises(out) as caught:
        await way(acquire, at_once, raised)
    assert caught.value is raised
    assert caught.value.__context__ is None


@pytest.mark.asyncio(loop_factories=["asyncio"])
@pytest.mark.parametrize("way", IN)
async def test_a_message_that_was_taken_is_given_back(way: Callable[..., Any]) -> None:
    """More often than the ring has slots, so that one leak would hold the writer up."""
    with ends() as (queue, writer, (reader,)):
        slots = fill(writer)
        for sequence in range(slots, 2 * slots):
            await leave(way, reader.acquire_read, reader.try_acquire_read, OUT[sequence % len(OUT)])
            assert queue.statistics().leases == 0
            writer.put_nowait(content(sequence, 1000))
        assert reader.get_many(2 * slots) == [content(sequence, 1000) for sequence in range(slots, 2 * slots)]


@pytest.mark.asyncio(loop_factories=["asyncio"])
@pytest.mark.parametrize("way", IN)
async def test_a_message_that_was_begun_is_never_seen(way: Callable[..., Any]) -> None:
    with ends() as (queue, writer, (reader,)):
        for out in OUT:
            await leave(way, lambda: writer.acquire_write(1000), lambda: writer.try_acquire_write(1000), out)
        with pytest.raises(aiospin.Empty):
            reader.get_nowait()
        writer.put(b"after")
        assert reader.get() == b"after"
        assert queue.statistics().published == 128
