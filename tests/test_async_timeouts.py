"""Time-outs: at least as long as asked, never a message lost, and what is not a time-out is refused by name."""

from __future__ import annotations

import asyncio
import math
import time
import warnings
from typing import Any

import pytest
from async_rig import assert_whole, content, fill, number, pair, suspended

from aiospin import BlockingInEventLoopWarning, WaitPolicy, WaitSet, await_any, lowlevel, wait_any
from aiospin.testing import at_stages

INLINE = WaitPolicy(maximum_us=0.5)  # watches in place, then parks
MONITORED = WaitPolicy(minimum_us=1e7, maximum_us=1e7, core_share=1.0)  # the waiter thread watches to the end
PARKED = WaitPolicy(maximum_us=0.5, inline_us=0.0)  # nobody watches


@pytest.fixture(autouse=True)
def many_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """No policy collapses, however small the machine."""
    monkeypatch.setattr("aiospin._endpoint.usable_cpus", lambda *_: 64)


CALLS = ("acquire_read", "aget", "aget_many")


def read(reader: Any, call: str, timeout: float) -> Any:
    arguments = (4,) if call == "aget_many" else ()
    return getattr(reader, call)(*arguments, timeout=timeout)


@pytest.mark.parametrize("policy", [INLINE, MONITORED, PARKED, WaitPolicy(core_share=1.0, parks=False)])
async def test_a_time_out_ends_a_wait_in_any_stage(policy: WaitPolicy) -> None:
    with pair(policy=policy) as (queue, writer, reader):
        for seconds in (1e-6, 1e-4, 0.01):
            for call in CALLS:
                began = time.monotonic()
                with pytest.raises(TimeoutError, match=rf"reader 0.*{seconds!r}"):
                    await read(reader, call, seconds)
                assert time.monotonic() - began >= seconds * 0.99
        writer.put(content(0))
        assert number(await reader.aget(timeout=1e-6)) == 0
        assert_whole(queue, writer, reader)


@pytest.mark.native
async def test_a_time_out_in_the_monitor_stage_is_in_the_monitor_stage() -> None:
    stages: list[str] = []
    with pair(policy=MONITORED) as (_, _, reader), at_stages(lambda stage, _: stages.append(stage)):
        with pytest.raises(TimeoutError):
            await reader.aget(timeout=0.01)
    assert stages[-2:] == ["monitor", "notified"] and "parked" not in stages


async def test_a_time_out_of_a_parked_wait_is_of_a_parked_wait() -> None:
    stages: list[str] = []
    with pair(policy=PARKED) as (_, _, reader), at_stages(lambda stage, _: stages.append(stage)):
        with pytest.raises(TimeoutError):
            await reader.aget(timeout=0.01)
    assert stages[-2:] == ["parked", "notified"] and "monitor" not in stages


async def test_a_message_beside_a_time_out_is_delivered_now_or_next() -> None:
    with pair(policy=PARKED) as (queue, writer, reader):
        received: list[int] = []
        loop = asyncio.get_running_loop()
        for sequence in range(200):
            loop.call_later(0.0005, writer.put, content(sequence))
            while len(received) <= sequence:
                try:
                    received.append(number(await reader.aget(timeout=0.0005)))
                except TimeoutError:
                    continue
        assert received == list(range(200))
        assert_whole(queue, writer, reader)


async def test_zero_looks_once_and_never_waits() -> None:
    stages: list[str] = []
    with pair() as (queue, writer, reader), at_stages(lambda stage, _: stages.append(stage)):
        for call in CALLS:
            with pytest.raises(TimeoutError):
                await read(reader, call, 0)
        assert fill(writer)
        for operation in (writer.aput(content(0, 1000), timeout=0), writer.acquire_write(1000, timeout=0)):
            with pytest.raises(TimeoutError, match="writer"):
                await operation
        assert stages == []
        assert number(await reader.aget(timeout=0)) == 0
        await writer.aput(b"", timeout=0)
        assert len(reader.get_many(1000)) >= 2
        assert_whole(queue, writer, reader)


async def test_a_time_out_of_the_writer_publishes_nothing() -> None:
    with pair(policy=PARKED) as (queue, writer, reader):
        count = fill(writer)
        for _ in range(20):
            with pytest.raises(TimeoutError, match=r"writer.*0\.001"):
                await writer.aput(content(99, 1000), timeout=0.001)
            with pytest.raises(TimeoutError):
                await writer.acquire_write(1000, timeout=0.001)
        assert [number(payload) for payload in await reader.aget_many(1000)] == list(range(count))
        assert_whole(queue, writer, reader)


@pytest.mark.parametrize(
    ("timeout", "error"),
    [
        (-1, ValueError),
        (-0.001, ValueError),
        (math.nan, ValueError),
        ("1", TypeError),
        (b"", TypeError),
        ([], TypeError),
    ],
)
async def test_what_is_no_time_out_is_refused_by_name(timeout: Any, error: type[Exception]) -> None:
    with pair() as (queue, writer, reader), WaitSet([reader]) as waits:
        for call in (
            lambda: reader.acquire_read(timeout),
            lambda: reader.acquire_read(timeout=timeout),
            lambda: reader.aget(timeout),
            lambda: reader.aget_many(1, timeout),
            lambda: reader.get(timeout),
            lambda: reader.get_many(1, timeout=timeout),
            lambda: writer.aput(b"", timeout=timeout),
            lambda: writer.aput_many([b""], timeout=timeout),
            lambda: writer.acquire_write(1, timeout),
            lambda: writer.put(b"", timeout=timeout),
            lambda: writer.put_many([b""], timeout),
            lambda: waits.wait_sync(timeout),
            lambda: wait_any(reader, timeout=timeout),
            lambda: lowlevel.wait_word(bytearray(8), "==", 0, timeout=timeout),
        ):
            with pytest.raises(error, match="timeout"):
                call()
        for awaitable in (waits.wait(timeout), await_any(reader, timeout=timeout), queue.ready(timeout)):
            with pytest.raises(error, match="timeout"):
                await awaitable
        assert reader.try_acquire_read() is None


async def test_infinity_is_for_ever() -> None:
    with pair(policy=PARKED) as (_, writer, reader):
        waiting = asyncio.ensure_future(reader.aget(timeout=math.inf))
        await suspended(reader)
        writer.put(content(0))
        assert number(await waiting) == 0


@pytest.mark.parametrize("call", ["get", "get_many", "with", "for", "put", "acquire_write", "wait_any", "wait_sync"])
async def test_a_blocking_call_that_would_wait_warns(call: str) -> None:
    with pair() as (_, writer, reader):
        fill(writer)
        reader.get_many(1000)

        def block() -> None:
            if call == "get":
                reader.get(timeout=0.02)
            elif call == "get_many":
                reader.get_many(1, timeout=0.02)
            elif call == "with":
                with reader.acquire_read(timeout=0.02):
                    raise AssertionError
            elif call == "for":
                asyncio.get_running_loop().call_soon(writer.close)
                next(iter(reader))
            elif call == "wait_any":
                wait_any(reader, timeout=0.02)
            elif call == "wait_sync":
                with WaitSet([reader]) as waits:
                    waits.wait_sync(timeout=0.02)
            else:
                fill(writer)
                if call == "put":
                    writer.put(content(0, 1000), timeout=0.02)
                else:
                    with writer.acquire_write(1000, timeout=0.02):
                        raise AssertionError

        if call == "for":  # has no time-out: the warning, made an error, ends it
            with pytest.raises(BlockingInEventLoopWarning, match=r"reader 0.*await"):
                block()
            return
        with pytest.warns(BlockingInEventLoopWarning, match="await"), pytest.raises(TimeoutError):
            block()
        with warnings.catch_warnings(), pytest.raises(TimeoutError):
            warnings.simplefilter("error")
            block()  # once is enough


async def test_a_blocking_call_that_does_not_wait_does_not_warn() -> None:
    with pair() as (queue, writer, reader):
        writer.put_many([content(sequence) for sequence in range(4)])
        assert number(reader.get()) == 0
        with reader.acquire_read() as slot:
            assert number(slot.data) == 1
        assert wait_any(reader) == [reader]
        assert number(next(iter(reader))) == 2
        assert len(reader.get_many(9)) == 1
        with writer.acquire_write(1):
            pass
        assert len(reader.get_nowait()) == 1
        with pytest.raises(TimeoutError):
            reader.get(timeout=0)
        with pytest.raises(TimeoutError):
            wait_any(reader, timeout=0)
        assert_whole(queue, writer, reader)


def test_a_blocking_call_in_a_thread_without_a_loop_does_not_warn() -> None:
    with pair() as (_, _, reader), pytest.raises(TimeoutError):
        reader.get(timeout=0.001)
