"""Calls of one worker and of all: who runs them, what comes back, and that none stands in another's way."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hosted import KINDS, Looped, Plain
from stage import Stage

from aiospin.workers import Caller, WorkerGroup

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_call_runs_once_on_every_worker(group: WorkerGroup[Any]) -> None:
    assert await group.call("run", "once on each") == ["once on each"] * 2
    assert [ran.count("once on each") for ran in await group.call("what_ran")] == [1, 1]


async def test_results_come_in_the_order_of_ranks(group: WorkerGroup[Any], stage: Stage) -> None:
    calling = asyncio.ensure_future(group.call("pid_at", "in order"))
    players = {player.pid: player for player in [await stage.entered("in order") for _ in range(2)]}
    for pid in reversed(group.pids):  # the last rank ends first
        players[pid].go()
        await players[pid].left()
    assert await calling == list(group.pids)


async def test_a_method_is_meant_by_itself_or_by_its_name(group: WorkerGroup[Any], kind: str) -> None:
    method = KINDS[kind].add
    assert await group.call(method, 1, two=2) == await group.call("add", 1, two=2) == [3, 3]
    assert await group.call_one(0, method, 4) == await group.call_one(0, "add", one=4) == 4


async def test_a_call_of_one_rank_runs_there(group: WorkerGroup[Any]) -> None:
    assert [await group.call_one(rank, "pid") for rank in range(group.size)] == list(group.pids)
    assert len(set(group.pids)) == group.size


async def test_names_of_arguments_are_the_methods_own(group: WorkerGroup[Any]) -> None:
    named = {"timeout": 1, "delivery": "x", "rank": 2, "method": 3, "kill_after": 4, "name": 5, "args": 6, "kwargs": 7}
    assert await group.call_one(0, "named", 1, **named) == [[1], named]
    assert await group.options(timeout=60).call("named", **named) == [[[], named]] * 2


async def test_a_stream_gives_each_part(group: WorkerGroup[Any], kind: str) -> None:
    assert [part async for part in group.stream(1, KINDS[kind].count, 5)] == [0, 1, 2, 3, 4]
    assert [part async for part in group.stream("any", "count", 0)] == []


async def test_an_async_class_streams_sync_generators_too(looped: WorkerGroup[Looped]) -> None:
    assert [part async for part in looped.stream(0, Looped.count_at_once, 3)] == [0, 1, 2]


async def test_an_async_class_may_have_sync_methods(looped: WorkerGroup[Looped]) -> None:
    assert await looped.call(Looped.echo_at_once, "x") == ["x", "x"]


async def test_whatever_can_be_iterated_can_be_streamed(plain: WorkerGroup[Plain]) -> None:
    assert [part async for part in plain.stream(0, Plain.echo, [1, "two", None])] == [1, "two", None]


async def test_a_part_arrives_before_the_next_is_made(group: WorkerGroup[Any], stage: Stage) -> None:
    parts = group.stream(0, "parts", "part by part", 2)
    first = asyncio.ensure_future(parts.__anext__())
    player = await stage.entered("part by part")
    player.go()
    assert await first == 0
    player.go()
    assert [part async for part in parts] == [1]
    assert await player.left() == ["through"]


async def test_a_busy_worker_delays_no_other(group: WorkerGroup[Any], stage: Stage) -> None:
    busy = [asyncio.ensure_future(group.call_one(0, "at", "busy")) for _ in range(3)]
    player = await stage.entered("busy")
    for number in range(10):
        assert await group.call_one(1, "echo", number) == number
    assert [part async for part in group.stream(1, "count", 3)] == [0, 1, 2]
    assert player.pid == group.pids[0]
    player.go()
    for _ in busy[1:]:
        (await stage.entered("busy")).go()
    await asyncio.gather(*busy)


async def test_who_has_ended_a_call_of_all_is_free_before_the_others(group: WorkerGroup[Any], stage: Stage) -> None:
    calling = asyncio.ensure_future(group.call("pid_at", "all"))
    players = {player.pid: player for player in [await stage.entered("all") for _ in range(2)]}
    players[group.pids[1]].go()
    assert await group.call_one(1, "echo", "free again") == "free again"
    assert not calling.done()
    players[group.pids[0]].go()
    assert await calling == list(group.pids)


async def test_many_calls_in_flight_keep_their_answers_apart(group: WorkerGroup[Any]) -> None:
    ranks: list[Any] = [0, 1, "any"]
    calls = [group.call_one(ranks[number % 3], "echo", number) for number in range(300)]
    assert await asyncio.gather(*calls) == list(range(300))


async def test_a_sync_worker_runs_calls_in_the_order_given(plain: WorkerGroup[Plain]) -> None:
    names = [f"in turn {number}" for number in range(50)]
    await asyncio.gather(*(plain.call_one(0, Plain.run, name) for name in names))
    assert [name for name in await plain.call_one(0, Plain.what_ran) if name.startswith("in turn")] == names


async def test_async_methods_run_beside_each_other(looped: WorkerGroup[Looped], stage: Stage) -> None:
    first = asyncio.ensure_future(looped.call_one(0, Looped.at, "first", 1))
    second = asyncio.ensure_future(looped.call_one(0, Looped.at, "second", 2))
    players = [await stage.entered(place) for place in ("first", "second")]
    players[1].go()
    assert await second == 2
    assert not first.done()
    players[0].go()
    assert await first == 1


async def test_any_is_the_worker_with_the_least_to_do(group: WorkerGroup[Any], stage: Stage) -> None:
    standing = []
    for rank in (0, 1, 0):
        place = f"least {rank}"
        standing.append(asyncio.ensure_future(group.call_one(rank, "at", place)))
    players = [await stage.entered("least 0"), await stage.entered("least 1")]
    assert [worker.calls for worker in group.statistics().workers] == [2, 1]
    third = asyncio.ensure_future(group.call_one("any", "pid"))
    await asyncio.sleep(0)
    assert [worker.calls for worker in group.statistics().workers] == [2, 2]
    for player in players:
        player.go()
    (await stage.entered("least 0")).go()
    assert await third == group.pids[1]
    await asyncio.gather(*standing)


async def test_any_goes_round_a_busy_worker(group: WorkerGroup[Any], stage: Stage) -> None:
    busy = asyncio.ensure_future(group.call_one(0, "at", "occupied"))
    player = await stage.entered("occupied")
    for _ in range(5):
        assert await group.call_one("any", "pid") == group.pids[1]
    player.go()
    await busy


async def test_a_pipeline_of_one_gives_a_worker_nothing_ahead() -> None:
    async with Stage() as stage, WorkerGroup(Looped, 1, args=(stage.address,), pipeline=1) as group:
        first = asyncio.ensure_future(group.call_one(0, Looped.at, "only one"))
        second = asyncio.ensure_future(group.call_one(0, Looped.at, "then me"))
        player = await stage.entered("only one")
        assert (group.statistics().workers[0].calls, group.statistics().workers[0].waiting) == (1, 1)
        player.go()
        await first
        (await stage.entered("then me")).go()
        await second
        assert await group.call_one(0, Looped.what_ran) == ["only one", "then me"]


async def test_what_waits_for_any_worker_goes_to_the_first_that_is_free() -> None:
    async with Stage() as stage, WorkerGroup(Plain, 2, args=(stage.address,), pipeline=1) as group:
        busy = [asyncio.ensure_future(group.call_one(rank, Plain.at, f"place {rank}")) for rank in range(2)]
        players = [await stage.entered(f"place {rank}") for rank in range(2)]
        waiting = [asyncio.ensure_future(group.call_one("any", Plain.pid)) for _ in range(3)]
        await asyncio.sleep(0)
        assert group.statistics().waiting == 3
        players[1].go()
        assert set(await asyncio.gather(*waiting)) == {group.pids[1]}
        players[0].go()
        await asyncio.gather(*busy)


@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
async def test_every_start_method_serves(method: str, kind: str) -> None:
    async with WorkerGroup(KINDS[kind], 2, start_method=method) as group:
        assert await group.call("pid") == list(group.pids)
        assert await group.call_one("any", "echo", "x") == "x"
        assert [part async for part in group.stream(1, "count", 3)] == [0, 1, 2]


def make(mark: Any, *, stage: str = "") -> Plain:
    """A factory that is no class."""
    return Plain(stage, mark)


async def test_a_factory_gets_its_arguments_whatever_pickles() -> None:
    mark = {("a", 1): {2, 3}, "b": complex(1, 2)}
    async with WorkerGroup(make, 1, args=[mark], kwargs={"stage": "unused"}, codec="pickle") as group:
        assert await group.call_one(0, Plain.marked) == mark


async def test_options_leave_the_caller_as_it_was(group: WorkerGroup[Any], stage: Stage, kind: str) -> None:
    hurried = group.options(timeout=0.01)
    patient = hurried.options(timeout=None)
    assert isinstance(hurried, Caller)
    assert not isinstance(hurried, WorkerGroup)
    with pytest.raises(TimeoutError):
        await hurried.options(delivery="at_least_once").call_one(0, "at", f"hurried {kind}")  # keeps the time-out
    stage.dismiss(f"hurried {kind}")
    for caller in (group, patient):
        calling = asyncio.ensure_future(caller.call_one(0, "at", "patient"))
        player = await stage.entered("patient")
        await asyncio.sleep(0.03)  # three times what the hurried one has
        player.go()
        await calling
