"""Long waits of a MessageQueue say whose fault they are, by the user's ranks; what the environment says is honoured."""

from __future__ import annotations

import asyncio
import logging
import os
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from compat_rig import end, fill, only_writer, reading, sides, slept
from ends import asleep
from programs import Program

from aiospin.compat.vllm import MessageQueue, _settings

pytestmark = pytest.mark.usefixtures("leaves_nothing")


def stories(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """The fields of each line, after checking that the text says the same."""
    told = []
    for record in caplog.records:
        assert (record.name, record.levelno) == ("aiospin", logging.WARNING)
        fields: dict[str, Any] = record.aiospin  # type: ignore[attr-defined]
        for name, value in fields.items():
            assert f"{name}={value}".replace(" ", "_") in record.getMessage()
        told.append(fields)
    caplog.clear()
    return told


def test_the_writers_line_names_the_ranks_that_users_gave(caplog: pytest.LogCaptureFixture) -> None:
    with only_writer((5, 9, 2)) as queue:
        first = MessageQueue.create_from_handle(queue.export_handle(), 5)
        with reading(queue, 9, messages=1) as program:
            queue.enqueue("one")
            assert program.hear() == "ready"
            program.kill()
            end(queue)._report_stall(61.5)
            [story] = stories(caplog)
            assert story["role"] == "writer" and story["rank"] == "-" and story["pid"] == os.getpid()
            assert {name: story[name] for name in ("reader_5", "reader_9", "reader_2")} == {
                "reader_5": "alive",
                "reader_9": "dead",
                "reader_2": "never attached",
            }
            assert (story["reader_5_pid"], story["reader_9_pid"]) == (os.getpid(), program.pid)
            assert story["lag_5"] > 0 and "lag_9" not in story, "who has not read is named"
            assert not {"reader_0", "reader_1", "lag_0", "lag_1"} & story.keys()
            assert story["waited_s"] == 61.5
        first.shutdown()


def test_ranks_that_look_like_places_are_not_mixed_up(caplog: pytest.LogCaptureFixture) -> None:
    with sides((2, 0, 1)) as (queue, readers):
        queue.enqueue("for 0 alone")
        readers[1].dequeue()
        end(queue)._report_stall(100.0)
        [story] = stories(caplog)
        assert [rank for rank in (0, 1, 2) if f"lag_{rank}" in story] == [1, 2]
        assert all(story[f"reader_{rank}"] == "alive" for rank in (0, 1, 2))


@pytest.mark.parametrize(("place", "rank"), [(0, 5), (1, 9)])
def test_a_readers_line_names_its_own_rank(caplog: pytest.LogCaptureFixture, place: int, rank: int) -> None:
    with sides((5, 9)) as (_, readers):
        end(readers[place])._report_stall(61.0)
        [story] = stories(caplog)
        assert (story["role"], story["rank"], story["writer"], story["writer_pid"]) == (
            "reader",
            rank,
            "alive",
            os.getpid(),
        )


def test_a_wait_that_may_be_long_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    """The same wait, driven from beside it: silent while it is meant to be long, told when it is not."""
    with ThreadPoolExecutor(1) as pool, sides((5,)) as (queue, [reader]):
        since = 0
        for indefinite in (True, False, True):
            waiting = pool.submit(reader.dequeue, None, indefinite)
            asleep(end(reader), since)
            end(reader)._stall.over()
            end(reader)._report_stall(1000.0)
            assert len(stories(caplog)) == (not indefinite)
            queue.enqueue("over")
            assert waiting.result() == "over"
            since = slept(reader)


@pytest.mark.parametrize("indefinite", [True, False])
async def test_coroutines_may_wait_long_too(caplog: pytest.LogCaptureFixture, indefinite: bool) -> None:
    with sides((5,)) as (queue, [reader]):
        waiting = asyncio.ensure_future(reader.adequeue(indefinite=indefinite))
        while not slept(reader):
            await asyncio.sleep(0)
        end(reader)._report_stall(1000.0)
        assert len(stories(caplog)) == (not indefinite)
        queue.enqueue("over")
        assert await waiting == "over"


def test_a_writer_that_waits_is_always_told_of(caplog: pytest.LogCaptureFixture) -> None:
    with ThreadPoolExecutor(1) as pool, sides((5,)) as (queue, [reader]):
        count = fill(queue)
        waiting = pool.submit(queue.enqueue, bytes(1000))
        asleep(end(queue))
        end(queue)._report_stall(61.0)
        [story] = stories(caplog)
        assert story["lag_5"] == count * 1088
        reader.dequeue()
        waiting.result()


def test_a_wait_is_told_after_the_interval_and_at_doubling_ones(caplog: pytest.LogCaptureFixture) -> None:
    with sides((5,)) as (queue, [reader]):
        for side in (queue, reader):
            for waited in (1.0, 30.0, 59.9, 60.0, 61.0, 119.0, 120.0, 239.0, 240.0):
                end(side)._report_stall(waited)
            assert [story["waited_s"] for story in stories(caplog)] == [60.0, 120.0, 240.0]


def test_ends_that_tell_stalls_are_not_kept_alive_by_it() -> None:
    """Nothing that logs a stall refers to its queue: it goes as soon as nobody has it."""
    queue = MessageQueue(1, 1, [5], capacity="64 KiB")
    reader = MessageQueue.create_from_handle(queue.export_handle(), 5)
    gone = [weakref.ref(queue), weakref.ref(reader)]
    del queue, reader
    assert [alive() for alive in gone] == [None, None]


# the environment

ASKS = """
    import threading
    from aiospin.compat.vllm import MessageQueue, _settings
    queue = MessageQueue(1, 1, [5], capacity=RING, max_chunk_bytes=1000)
    reader = MessageQueue.create_from_handle(queue.export_handle(), 5)
    ends = [queue._sender.end, reader._receiver.end]
    say([[end._options.stall_after, end._options.policy.rung] for end in ends])
    queue.enqueue("works")
    assert reader.dequeue() == "works"
    waiting = threading.Thread(target=reader.dequeue)
    waiting.start()
    asleep(ends[1])
    queue.enqueue("wakes")
    waiting.join()
    queue.shutdown()
    reader.shutdown()
"""


@pytest.mark.parametrize(
    ("environment", "stall_after", "rung"),
    [
        ({}, 60.0, None),
        ({"VLLM_RINGBUFFER_WARNING_INTERVAL": "5"}, 5.0, None),
        ({"VLLM_RINGBUFFER_WARNING_INTERVAL": " 0.25 "}, 0.25, None),
        ({"VLLM_USE_SPINLOOP_EXT": "1"}, 60.0, None),
        ({"VLLM_USE_SPINLOOP_EXT": "0"}, 60.0, "yield"),
        ({"VLLM_USE_SPINLOOP_EXT": "0", "AIOSPIN_POLICY": "eco"}, 60.0, "yield"),
    ],
)
def test_the_environment_is_honoured(environment: dict[str, str], stall_after: float, rung: str | None) -> None:
    with Program(ASKS, environment=environment) as program:
        assert program.hear() == [[stall_after, rung]] * 2
        program.finish()


@pytest.mark.parametrize("value", ["", "soon", "0", "-1", "nan", "60s"])
def test_an_interval_that_cannot_be_meant_is_refused_by_name(value: str) -> None:
    program = """
        try:
            import aiospin.compat.vllm
        except ValueError as error:
            say(str(error))
    """
    with Program(program, environment={"VLLM_RINGBUFFER_WARNING_INTERVAL": value}) as child:
        said = child.hear()
        assert said.startswith("VLLM_RINGBUFFER_WARNING_INTERVAL must be") and said.endswith(repr(value))
        child.finish()


@pytest.mark.parametrize("value", ["maybe", "0.5", ""])
def test_a_switch_that_cannot_be_meant_is_refused_by_name(value: str) -> None:
    program = """
        try:
            import aiospin.compat.vllm
        except ValueError as error:
            say(str(error))
    """
    with Program(program, environment={"VLLM_USE_SPINLOOP_EXT": value}) as child:
        said = child.hear()
        assert said.startswith("VLLM_USE_SPINLOOP_EXT must be") and said.endswith(repr(value))
        child.finish()


def test_nothing_of_it_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_RINGBUFFER_WARNING_INTERVAL", "1")
    with sides((5,)) as (queue, [reader]):
        assert end(queue)._options.stall_after == end(reader)._options.stall_after == _settings.WARNING_INTERVAL
