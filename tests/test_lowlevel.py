"""Words that nobody rings for, and bells for loops that are not asyncio's."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import mmap
import select
import struct
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest
from async_rig import assert_whole, content, fill, number, numbers, pair, turns

from aiospin import QueueClosed, _backend, _loop, lowlevel
from aiospin.lowlevel import await_word, store_word, wait_word


def words(*values: int) -> bytearray:
    return bytearray(struct.pack(f"<{len(values)}Q", *values))


HOLDS = [
    ("==", 5, 5, None),
    ("!=", 5, 4, None),
    (">=", 5, 5, None),
    (">=", 2**64 - 1, 1, None),
    ("<", 4, 5, None),
    ("==", 0x1234, 0x34, 0xFF),
    ("!=", 0x1234, 0x12, 0xFF),
]


@pytest.mark.parametrize(("comparison", "word", "value", "mask"), HOLDS)
async def test_a_word_that_is_right_already_returns_at_once(
    comparison: str, word: int, value: int, mask: int | None
) -> None:
    options: dict[str, Any] = {} if mask is None else {"mask": mask}
    buffer = words(0, 99, word)
    wait_word(buffer, comparison, value, offset=16, timeout=0, **options)
    wait_word(memoryview(bytes(buffer)), comparison, value, offset=16, **options)
    await await_word(buffer, comparison, value, offset=16, timeout=0, **options)
    await await_word(buffer, comparison, value, offset=16, **options)


@pytest.mark.parametrize(
    ("comparison", "word", "value"), [("==", 5, 4), ("!=", 5, 5), (">=", 4, 5), ("<", 5, 5), ("<", 2**64 - 1, 1)]
)
async def test_a_word_that_stays_wrong_times_out(comparison: str, word: int, value: int) -> None:
    buffer = words(word)
    for timeout in (0, 1e-5, 0.005):
        began = time.monotonic()
        with pytest.raises(TimeoutError, match="offset 0"):
            wait_word(buffer, comparison, value, timeout=timeout)
        with pytest.raises(TimeoutError, match="offset 0"):
            await await_word(buffer, comparison, value, timeout=timeout)
        assert time.monotonic() - began >= 2 * timeout * 0.99


@pytest.mark.parametrize("nap", [1e-5, 1e-3])
async def test_a_word_that_changes_is_seen(nap: float) -> None:
    with mmap.mmap(-1, 4096) as shared:
        for value in range(1, 30):
            waiting = asyncio.ensure_future(await_word(shared, "==", value, offset=128, max_nap=nap))
            await turns(value % 5)
            struct.pack_into("<Q", shared, 128, value)
            await waiting


def test_a_thread_sees_a_word_that_another_changes() -> None:
    buffer = words(0, 0)
    rounds = 200

    def answer() -> None:
        for value in range(1, rounds):
            wait_word(buffer, ">=", value)
            struct.pack_into("<Q", buffer, 8, value)

    thread = threading.Thread(target=answer)
    thread.start()
    for value in range(1, rounds):
        struct.pack_into("<Q", buffer, 0, value)
        wait_word(buffer, "==", value, offset=8, timeout=60)
    thread.join()


async def test_many_words_are_awaited_at_once() -> None:
    buffer = words(*[0] * 32)
    waiting = [asyncio.ensure_future(await_word(buffer, "==", 7, offset=8 * i)) for i in range(32)]
    await turns()
    for i in range(31, -1, -1):
        assert not waiting[i].done()
        struct.pack_into("<Q", buffer, 8 * i, 7)
        await waiting[i]


async def test_a_cancelled_wait_for_a_word_leaves_nothing() -> None:
    buffer = words(0)
    for round_ in range(200):
        waiting = asyncio.ensure_future(await_word(buffer, "==", 1))
        await turns(round_ % 6)
        waiting.cancel()
        await asyncio.wait([waiting])
        assert waiting.cancelled()
    del waiting
    gc.collect()
    buffer.extend(b"no view of it is left: it can be resized")


@pytest.mark.parametrize(
    ("arguments", "options", "error"),
    [
        ((words(0), "==", 0), {"offset": 8}, ValueError),
        ((words(0), "==", 0), {"offset": -8}, ValueError),
        ((words(0, 0), "==", 0), {"offset": 4}, ValueError),
        ((b"short", "==", 0), {}, ValueError),
        ((words(0), "=", 0), {}, ValueError),
        ((words(0), "==", 0), {"max_nap": 0}, ValueError),
        ((words(0), "==", 0), {"max_nap": -1}, ValueError),
        ((words(0), "==", 0), {"max_nap": "1"}, TypeError),
        ((words(0), "==", 0), {"timeout": -1}, ValueError),
        ((words(0), "==", 0), {"timeout": "1"}, TypeError),
        (("text", "==", 0), {}, TypeError),
        ((words(0), "==", "0"), {"timeout": 0}, TypeError),
        ((words(0), "==", 0), {"max_nap": float("nan")}, ValueError),
        ((words(0), "==", 0), {"max_nap": True}, TypeError),
        ((words(0), "==", 0), {"timeout": float("nan")}, ValueError),
        ((words(0), 0, 0), {}, TypeError),
        ((words(0), "!=", -1), {}, ValueError),
        ((words(0), "!=", 0), {"mask": 0}, ValueError),
        ((words(0), "!=", 2**64), {}, ValueError),
        ((words(0), "!=", 1.0), {}, TypeError),
        ((words(0), "==", 0), {"mask": -1}, ValueError),
        ((words(0), "==", 0), {"mask": 2**64}, ValueError),
        ((words(0), "==", 0), {"mask": None}, TypeError),
        ((words(0), "==", 0), {"offset": 0.0}, TypeError),
        ((words(0), "==", 0), {"offset": 2**64}, ValueError),
        ((memoryview(words(0, 0))[4:12], "==", 0), {}, ValueError),
        ((memoryview(words(0, 0))[::2], "==", 0), {}, BufferError),
        # nobody would ever end these
        ((words(0), "==", 0x100), {"mask": 0xFF}, ValueError),
        ((words(0), ">=", 0x100), {"mask": 0xFF}, ValueError),
        ((words(0), "<", 0), {}, ValueError),
    ],
)
async def test_what_is_no_word_is_refused(arguments: Any, options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        wait_word(*arguments, **options)
    with pytest.raises(error):
        await await_word(*arguments, **options)
    if isinstance(arguments[0], bytearray):
        arguments[0].append(1)  # no view of it is left
        arguments[0].pop()


@pytest.mark.parametrize(
    ("buffer", "value", "offset", "error"),
    [
        (bytes(8), 1, 0, BufferError),
        (memoryview(bytearray(8)).toreadonly(), 1, 0, BufferError),
        (memoryview(bytearray(32))[::2], 1, 0, BufferError),
        ("text", 1, 0, TypeError),
        (bytearray(8), -1, 0, ValueError),
        (bytearray(8), 2**64, 0, ValueError),
        (bytearray(8), "1", 0, TypeError),
        (bytearray(8), 1.0, 0, TypeError),
        (bytearray(8), 1, 1, ValueError),
        (bytearray(8), 1, 8, ValueError),
        (bytearray(8), 1, -8, ValueError),
        (bytearray(8), 1, 2**64, ValueError),
        (bytearray(8), 1, None, TypeError),
        (memoryview(bytearray(16))[4:12], 1, 0, ValueError),
    ],
)
def test_what_cannot_be_stored_is_refused(buffer: Any, value: Any, offset: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        store_word(buffer, value, offset=offset)
    if isinstance(buffer, bytearray):
        assert not any(buffer)
        buffer.append(1)  # no view of it is left
        buffer.pop()


def test_a_word_is_stored_whole_and_alone() -> None:
    buffer = bytearray(b"\xff" * 24)
    store_word(buffer, 0x0102030405060708, offset=8)
    assert buffer == b"\xff" * 8 + bytes([8, 7, 6, 5, 4, 3, 2, 1]) + b"\xff" * 8
    store_word((ctypes.c_uint64 * 2).from_buffer(buffer), 2**64 - 1, offset=8)
    assert buffer == b"\xff" * 24


async def test_the_buffer_is_free_while_a_timeout_is_being_answered() -> None:
    """The traceback keeps the frames of the wait, and what they hold."""
    for timeout in (0, 1e-4):
        buffer = words(0)
        try:
            wait_word(buffer, "==", 1, timeout=timeout)
        except TimeoutError:
            buffer.extend(b"12345678")
        try:
            await await_word(buffer, "==", 1, timeout=timeout)
        except TimeoutError:
            buffer.extend(b"12345678")
        assert len(buffer) == 24


async def test_no_nap_of_a_coroutine_is_a_mere_turn_of_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """uvloop rounds 0.4 ms to nothing, and would go round and round."""
    naps: list[float] = []
    buffer = words(0)

    async def note(delay: float) -> None:
        naps.append(delay)
        if len(naps) == 3:
            store_word(buffer, 1)

    monkeypatch.setattr(asyncio, "sleep", note)
    await await_word(buffer, "==", 1, max_nap=1e-5)
    assert naps == [1e-3] * 3


@pytest.mark.native
async def test_a_word_that_cannot_be_handed_over_leaves_no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """The waiter thread may be refused, where threads are rationed."""

    class Refused(Exception):
        pass

    def refuse(*arguments: object) -> None:
        raise Refused

    station = _loop.here()
    buffer = words(0)
    word = lowlevel.Word(buffer, "==", 1)
    monkeypatch.setattr(word, "_watch", SimpleNamespace(ready=lambda: False, monitor=refuse, unmonitor=lambda: None))
    with pytest.raises(Refused):
        await lowlevel._watched(word._watch, 50)
    assert not station._tokens


@pytest.mark.native
def test_a_watch_that_was_released_says_so() -> None:
    watch = _backend.core.WordWatch(words(0), 0, "==", 1, 1)
    watch.release()
    watch.release()
    with pytest.raises(ValueError, match="released"):
        watch.ready()
    with pytest.raises(ValueError, match="released"):
        watch.watch(1, 0)
    watch.unmonitor()


def test_a_reader_can_be_waited_for_with_select() -> None:
    with pair() as (queue, writer, reader):
        received: list[int] = []

        def send() -> None:
            for sequence in range(500):
                writer.put(content(sequence))

        sender = threading.Thread(target=send)
        sender.start()
        while len(received) < 500:
            if reader.arm():
                assert select.select([reader.fileno()], [], [], 60)[0]
            with reader.acquire_read(timeout=60) if len(received) % 2 else reader.acquire_read() as slot:
                received.append(number(slot.data))
        sender.join()
        assert received == list(range(500))
        assert_whole(queue, writer, reader)


def test_arm_tells_whether_to_sleep() -> None:
    with pair() as (_, writer, reader):
        assert reader.arm() is True
        assert select.select([reader.fileno()], [], [], 0)[0] == []
        writer.put(content(0))
        assert select.select([reader.fileno()], [], [], 60)[0]
        assert reader.arm() is False  # there is something to take: do not sleep
        assert number(reader.get_nowait()) == 0
        assert reader.arm() is True
        assert select.select([reader.fileno()], [], [], 0)[0] == []  # the bell was drained
        writer.close()
        assert select.select([reader.fileno()], [], [], 60)[0]
        assert reader.arm() is False
        with pytest.raises(QueueClosed):
            reader.get_nowait()


def test_a_writer_can_be_waited_for_with_poll() -> None:
    with pair() as (_, writer, reader):
        count = fill(writer)
        assert writer.arm() is True
        bell = select.poll()
        bell.register(writer.fileno(), select.POLLIN)
        assert bell.poll(0) == []
        assert numbers(reader.get_many(1)) == [0]
        assert bell.poll(60_000)
        assert writer.arm() is False
        writer.put_nowait(content(count, 1000))
        assert numbers(reader.get_many(1000)) == list(range(1, count + 1))


async def test_awaiting_what_holds_already_keeps_nobody_from_running() -> None:
    memory = bytearray(8)
    given = 0

    async def other() -> None:
        nonlocal given
        while True:
            given += 1
            await asyncio.sleep(0)

    task = asyncio.ensure_future(other())
    for _ in range(20):
        await lowlevel.await_word(memory, "==", 0)
    task.cancel()
    assert given >= 20
