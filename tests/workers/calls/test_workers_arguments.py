"""What a group refuses, with an error that names the value; how many calls may be pending; what statistics say."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import pytest
from hosted import Plain
from stage import Stage

import aiospin
from aiospin.workers import Restart, WorkerGroup, WorkerStatistics

pytestmark = pytest.mark.asyncio(loop_scope="module")

BAD_ARGUMENTS: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"n": 0}, ValueError, "n must be at least 1, got 0"),
    ({"n": -1}, ValueError, "n must be at least 1, got -1"),
    ({"n": True}, TypeError, "n must be a whole number, got True"),
    ({"n": 1.0}, TypeError, r"n must be a whole number, got 1\.0"),
    ({"n": "2"}, TypeError, "n must be a whole number, got '2'"),
    ({"factory": 5}, TypeError, "factory must be a class or function, got 5"),
    ({"factory": None}, TypeError, "factory must be a class or function, got None"),
    ({"start_method": "thread"}, ValueError, "start_method must be one of spawn, forkserver, fork, got 'thread'"),
    ({"start_method": None}, ValueError, "got None"),
    ({"codec": "json"}, ValueError, "codec must be one of msgpack, pickle, got 'json'"),
    ({"codec": None}, ValueError, "got None"),
    ({"capacity": "much"}, ValueError, "much"),
    ({"capacity": -1}, ValueError, "-1"),
    ({"capacity": 1.5}, TypeError, r"1\.5"),
    ({"policy": "eager"}, ValueError, "eager"),
    ({"policy": 5}, TypeError, "5"),
    ({"restart": "always"}, TypeError, "restart must be a Restart or None, got 'always'"),
    ({"restart": 3}, TypeError, "restart must be a Restart or None, got 3"),
    ({"max_deliveries": 0}, ValueError, "max_deliveries must be at least 1, got 0"),
    ({"max_deliveries": None}, TypeError, "max_deliveries must be a whole number, got None"),
    ({"max_pending": 0}, ValueError, "max_pending must be at least 1, got 0"),
    ({"max_pending": 1.5}, TypeError, r"max_pending must be a whole number, got 1\.5"),
    ({"pipeline": 0}, ValueError, "pipeline must be at least 1, got 0"),
    ({"pipeline": "4"}, TypeError, "pipeline must be a whole number, got '4'"),
    ({"cpus": [{0}]}, ValueError, "cpus must name a set of CPUs for each of 2 workers, got 1"),
    ({"cpus": [{0}, {99999}]}, ValueError, "99999"),
    ({"cpus": [{0}, set()]}, ValueError, r"got \[\]"),
    ({"threads": 0}, ValueError, "threads must be at least 1, got 0"),
    ({"threads": "all"}, TypeError, "threads must be a whole number, got 'all'"),
    ({"timeout": -1}, ValueError, "timeout must be 0 or more seconds, .*-1"),
    ({"timeout": "1"}, TypeError, "timeout must be a number of seconds or None, .*'1'"),
    ({"timeout": float("nan")}, ValueError, "nan"),
    ({"delivery": "exactly_once"}, ValueError, "delivery must be one of .*, got 'exactly_once'"),
    ({"kill_after": -1}, ValueError, "kill_after must be .*-1"),
    ({"kill_after": "1"}, TypeError, "kill_after must be .*'1'"),
    ({"start_timeout": -1}, ValueError, "start_timeout must be .*-1"),
    ({"start_timeout": "1"}, TypeError, "start_timeout must be .*'1'"),
    ({"drain_timeout": -1}, ValueError, "drain_timeout must be .*-1"),
    ({"drain_timeout": "1"}, TypeError, "drain_timeout must be .*'1'"),
    ({"args": 5}, TypeError, "args must .*5"),
    ({"kwargs": 5}, TypeError, "kwargs must .*5"),
    ({"args": [lambda: None]}, Exception, "lambda"),
    ({"no_such_argument": 1}, TypeError, "no_such_argument"),
]


@pytest.mark.parametrize(("changed", "error", "text"), BAD_ARGUMENTS, ids=[str(bad[0])[:40] for bad in BAD_ARGUMENTS])
async def test_bad_arguments_are_refused_before_anything_starts(
    changed: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        await WorkerGroup(**{"factory": Plain, "n": 2, **changed}).__aenter__()


BAD_OPTIONS = [each for each in BAD_ARGUMENTS if set(each[0]) & {"timeout", "delivery", "kill_after"}]


@pytest.mark.parametrize(("changed", "error", "text"), BAD_OPTIONS)
async def test_bad_options_are_refused(
    plain: WorkerGroup[Plain], changed: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        plain.options(**changed)


@pytest.mark.parametrize(
    ("changed", "error", "text"),
    [
        ({"first": -1}, ValueError, "first must be finite and at least 0, got -1"),
        ({"first": "1"}, TypeError, "first must be a number, got '1'"),
        ({"factor": 0.5}, ValueError, r"factor must be finite and at least 1, got 0\.5"),
        ({"most": float("inf")}, ValueError, "most must be finite and at least 0, got inf"),
        ({"attempts": -1}, ValueError, "attempts must be 0 or more, got -1"),
        ({"attempts": 1.5}, TypeError, r"attempts must be a whole number or None, got 1\.5"),
    ],
)
async def test_a_bad_restart_is_refused(changed: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        Restart(**changed)


@pytest.mark.parametrize(
    ("rank", "error"),
    [(2, ValueError), (-1, ValueError), ("all", TypeError), (None, TypeError), (True, TypeError), (0.0, TypeError)],
)
async def test_a_bad_rank_is_refused_at_once(plain: WorkerGroup[Plain], rank: Any, error: type[Exception]) -> None:
    for awaited in (plain.call_one(rank, "echo"), plain.stream(rank, "count", 3).__anext__(), plain.restart(rank)):
        with pytest.raises(error, match=f"rank must be .*{rank!r}"):
            await awaited
    assert plain.statistics().pending == 0


async def test_a_group_that_is_not_entered_takes_no_calls() -> None:
    group = WorkerGroup(Plain, 2)
    assert group.size == 2
    assert group.pids == (0, 0)
    for awaited in (group.call_one(0, "echo"), group.call("echo"), group.stream(0, "count", 3).__anext__()):
        with pytest.raises(aiospin.QueueClosed, match="not entered yet"):
            await awaited
    await group.aclose()


async def test_a_group_that_was_left_takes_no_calls_and_is_not_entered_again() -> None:
    async with WorkerGroup(Plain, 1) as group:
        caller = group.options(timeout=60)
    for awaited in (group.call_one(0, "echo"), caller.call("echo"), group.stream(0, "count", 3).__anext__()):
        with pytest.raises(aiospin.QueueClosed, match="the group is closed"):
            await awaited
    with pytest.raises(RuntimeError, match="can be entered once"):
        await group.__aenter__()
    await group.aclose()
    await group.aclose()
    assert group.pids == (0,)


async def test_no_more_calls_are_pending_than_allowed() -> None:
    async with Stage() as stage:
        async with WorkerGroup(Plain, 2, args=(stage.address,), max_pending=3) as group:
            standing = [asyncio.ensure_future(group.call_one(0, Plain.at, "in")) for _ in range(2)]
            player = await stage.entered("in")
            with pytest.raises(aiospin.Full, match="2 calls are pending, and max_pending is 3"):
                await group.call(Plain.echo)  # counts for two
            third = asyncio.ensure_future(group.call_one(1, Plain.at, "third"))
            other = await stage.entered("third")
            for awaited in (group.call_one("any", Plain.echo), group.stream(0, Plain.count, 3).__anext__()):
                with pytest.raises(aiospin.Full, match="3 calls are pending, and max_pending is 3"):
                    await awaited
            other.go()
            await third
            assert await group.call_one(1, Plain.echo, "room again") == "room again"
            standing[1].cancel()  # it has not begun, so it is gone
            await asyncio.wait([standing[1]])
            player.go()
            await standing[0]
            assert await group.call(Plain.echo) == [None, None]


async def test_statistics_tell_who_does_what() -> None:
    async with Stage() as stage:
        async with WorkerGroup(Plain, 2, args=(stage.address,), pipeline=1) as group:
            idle = group.statistics()
            assert (idle.pending, idle.waiting) == (0, 0)
            assert idle.workers == tuple(
                WorkerStatistics(rank=rank, pid=group.pids[rank], state="up", calls=0, waiting=0, starts=1)
                for rank in range(2)
            )
            with pytest.raises(dataclasses.FrozenInstanceError):
                idle.pending = 1  # type: ignore[misc]
            calls = [asyncio.ensure_future(group.call_one(0, Plain.at, "one")) for _ in range(3)]
            calls.append(asyncio.ensure_future(group.call_one(1, Plain.at, "two")))
            players = [await stage.entered("one"), await stage.entered("two")]
            calls.append(asyncio.ensure_future(group.call_one("any", Plain.echo)))
            await asyncio.sleep(0)
            busy = group.statistics()
            assert (busy.pending, busy.waiting) == (5, 1)
            assert [(worker.calls, worker.waiting) for worker in busy.workers] == [(1, 2), (1, 0)]
            assert idle.pending == 0
            for player in players:
                player.go()
            for _ in range(2):
                (await stage.entered("one")).go()
            await asyncio.gather(*calls)
            assert group.statistics() == idle
        assert group.statistics().pending == 0
