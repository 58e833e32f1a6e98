"""Calls that are given up: what that means for the worker, by where the call is, and what the caller sees."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, cast

import pytest
from hosted import KINDS, Looped, Plain
from stage import Stage, settle

from aiospin.workers import Restart, WorkerGroup

pytestmark = pytest.mark.asyncio(loop_scope="module")

RING = 1 << 18  # as in conftest


def stream(group: WorkerGroup[Any], *args: Any) -> AsyncGenerator[Any, None]:
    """One that can be closed."""
    return cast("AsyncGenerator[Any, None]", group.stream(*args))


async def given_up(task: asyncio.Task[Any]) -> None:
    """Cancel it, and see that it ends as cancelled."""
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelled()


@pytest.mark.parametrize("rank", [0, "any"])
async def test_a_call_that_waits_never_runs(plain: WorkerGroup[Plain], stage: Stage, rank: Any) -> None:
    standing = [asyncio.ensure_future(plain.call_one(each, Plain.at, f"before {each}")) for each in range(2)]
    players = [await stage.entered(f"before {each}") for each in range(2)]
    waiting = [asyncio.create_task(plain.call_one(rank, Plain.run, f"unwanted {number}")) for number in range(12)]
    await asyncio.sleep(0)  # some lie in the worker's queue by now, some wait for room in its pipeline
    assert plain.statistics().pending == 14
    for task in waiting:
        await given_up(task)
    for player in players:
        player.go()
    await asyncio.gather(*standing)
    assert not any(name.startswith("unwanted") for ran in await plain.call(Plain.what_ran) for name in ran)


async def test_async_calls_that_were_taken_back_by_their_turn_end(looped: WorkerGroup[Looped], stage: Stage) -> None:
    """Their worker's loop stands still, and then finds requests and cancels beside each other."""
    standing = asyncio.ensure_future(looped.call_one(0, Looped.block_at, "standing still"))
    player = await stage.entered("standing still")
    for _ in range(3):
        tasks = [asyncio.create_task(looped.call_one(0, Looped.run, "taken back")) for _ in range(3)]
        tasks.append(asyncio.create_task(looped.call(Looped.run, "taken back", bytes(RING // 8))))  # type: ignore[arg-type]
        await looped.call_one(1, Looped.echo)
        for task in tasks:
            await given_up(task)
    await looped.call_one(1, Looped.echo)
    player.go()
    await standing


async def test_a_task_that_is_cancelled_before_its_first_step_asks_for_nothing(group: WorkerGroup[Any]) -> None:
    await given_up(asyncio.create_task(group.call_one(0, "run", "never asked")))
    assert group.statistics().pending == 0
    assert "never asked" not in await group.call_one(0, "what_ran")


async def test_a_sync_method_runs_on_and_its_reply_is_discarded(plain: WorkerGroup[Plain], stage: Stage) -> None:
    task = asyncio.create_task(plain.call_one(0, Plain.at, "runs on", "for nobody"))
    player = await stage.entered("runs on")
    await given_up(task)  # at once: the method stands still
    after = asyncio.ensure_future(plain.call_one(0, Plain.echo, "mine"))
    player.go()
    assert await player.left() == []
    assert await after == "mine"


async def test_an_async_method_is_cancelled_in_the_worker(looped: WorkerGroup[Looped], stage: Stage) -> None:
    task = asyncio.create_task(looped.call_one(0, Looped.at, "in the worker"))
    player = await stage.entered("in the worker")
    await given_up(task)
    assert await player.left() == ["cancelled"]


async def test_other_calls_of_the_same_worker_are_spared(looped: WorkerGroup[Looped], stage: Stage) -> None:
    tasks = [asyncio.create_task(looped.call_one(0, Looped.at, f"beside {number}", number)) for number in range(3)]
    players = [await stage.entered(f"beside {number}") for number in range(3)]
    await given_up(tasks[1])
    assert await players[1].left() == ["cancelled"]
    for number in (0, 2):
        players[number].go()
        assert await tasks[number] == number


async def test_leaving_a_stream_early_closes_the_generator(plain: WorkerGroup[Plain], stage: Stage) -> None:
    """Between two parts, where a sync method can be stopped."""
    async for part in plain.stream(0, Plain.echo, [1, 2, 3]):
        assert part == 1
        break
    parts = stream(plain, 0, Plain.parts, "sync parts", 1000)
    first = asyncio.ensure_future(parts.__anext__())
    player = await stage.entered("sync parts")
    player.go()
    assert await first == 0
    await parts.aclose()
    await plain.call_one(1, Plain.echo)
    player.go()
    player.go()  # should the first have come before the cancel
    assert await player.left() == ["closed"]
    assert await plain.call_one(0, Plain.echo, "usable") == "usable"


async def test_leaving_a_stream_early_cancels_an_async_generator(looped: WorkerGroup[Looped], stage: Stage) -> None:
    parts = stream(looped, 0, Looped.parts, "async parts", 1000)
    first = asyncio.ensure_future(parts.__anext__())
    player = await stage.entered("async parts")
    player.go()
    assert await first == 0
    await parts.aclose()
    assert await player.left() == ["cancelled"]


async def test_a_stream_that_never_pauses_can_be_left(group: WorkerGroup[Any]) -> None:
    async for part in group.stream(0, "endless"):
        if part == 10:
            break
    while "closed" not in await group.call_one(0, "what_ran"):
        await asyncio.sleep(0)


async def test_an_endless_stream_lets_other_calls_through(looped: WorkerGroup[Looped]) -> None:
    async for part in looped.stream(0, Looped.endless):
        if part > 10:
            assert await looped.call_one(0, Looped.echo, "beside it") == "beside it"
            break


async def test_a_cancelled_task_that_takes_parts_ends_the_stream(group: WorkerGroup[Any], stage: Stage) -> None:
    async def take() -> None:
        async for _ in group.stream(0, "parts", "taker", 1000):
            pass

    task = asyncio.create_task(take())
    player = await stage.entered("taker")
    await given_up(task)
    await group.call_one(1, "echo")
    player.go()
    player.go()
    assert await player.left() in (["closed"], ["cancelled"])


async def test_a_stream_that_waits_for_its_turn_never_begins(plain: WorkerGroup[Plain], stage: Stage) -> None:
    standing = asyncio.ensure_future(plain.call_one(0, Plain.at, "before a stream"))
    player = await stage.entered("before a stream")
    first = asyncio.create_task(stream(plain, 0, Plain.parts, "not to be entered", 3).__anext__())
    await asyncio.sleep(0)
    assert plain.statistics().pending == 2
    await given_up(first)
    player.go()
    await standing
    await plain.call_one(0, Plain.echo)
    assert not stage.has_entered("not to be entered")


async def test_wait_for_ends_the_call(looped: WorkerGroup[Looped], stage: Stage) -> None:
    waiting, (player,) = await stage.begun(
        "waited for", lambda place, timeout: asyncio.wait_for(looped.call_one(0, Looped.at, place), timeout)
    )
    assert await player.left() == ["cancelled"]
    with pytest.raises(asyncio.TimeoutError):
        await waiting


async def test_cancelling_a_gather_ends_every_call(looped: WorkerGroup[Looped], stage: Stage) -> None:
    async def both() -> None:
        await asyncio.gather(looped.call_one(0, Looped.at, "gathered"), looped.call_one(1, Looped.at, "gathered"))

    task = asyncio.create_task(both())
    players = [await stage.entered("gathered") for _ in range(2)]
    await given_up(task)
    for player in players:
        assert await player.left() == ["cancelled"]


async def call_one(group: WorkerGroup[Any]) -> Any:
    return await group.call_one(0, "echo", "an answer")


async def call(group: WorkerGroup[Any]) -> Any:
    return (await group.call("echo", "an answer"))[0]


async def take(group: WorkerGroup[Any]) -> Any:
    parts = [part async for part in group.stream(0, "echo_each", ["an answer"])]
    return parts[0]


@pytest.mark.parametrize("way", [call_one, call, take])
async def test_a_cancel_is_never_swallowed(group: WorkerGroup[Any], way: Any) -> None:
    """Whenever it comes: a cancel that was accepted ends the task as cancelled, and any other has its answer."""
    outcomes = set()
    for turns in range(80):
        task = asyncio.create_task(way(group))
        for _ in range(turns):
            await asyncio.sleep(0)
        accepted = task.cancel()
        await asyncio.wait([task])
        assert task.cancelled() == accepted
        assert accepted or task.result() == "an answer"
        outcomes.add(accepted)
    assert True in outcomes


async def test_a_cancelled_method_that_answers_all_the_same_is_not_heard(
    looped: WorkerGroup[Looped], stage: Stage
) -> None:
    task = asyncio.create_task(looped.call_one(0, Looped.defy, "defiant"))
    player = await stage.entered("defiant")
    await given_up(task)
    assert await player.hear() == "cancelled"
    player.go()
    assert await player.left() == []
    assert await looped.call_one(0, Looped.echo, "usable") == "usable"


async def test_kill_after_ends_a_worker_that_does_not_stop(kind: str) -> None:
    async with Stage() as stage:
        async with WorkerGroup(KINDS[kind], 2, args=(stage.address,), restart=Restart(first=0)) as group:
            before = group.pids
            method = "at" if kind == "sync" else "defy"
            task = asyncio.create_task(group.options(kill_after=0.01).call_one(0, method, "stubborn"))
            player = await stage.entered("stubborn")
            await given_up(task)
            assert await player.left() in ([], ["cancelled"])
            assert await group.call_one(0, "pid") not in before
            assert await group.call_one(1, "pid") == before[1]
            await settle(group)


async def test_kill_after_spares_a_worker_that_stops_in_time(looped: WorkerGroup[Looped], stage: Stage) -> None:
    task = asyncio.create_task(looped.options(kill_after=60).call_one(0, Looped.at, "obedient"))
    player = await stage.entered("obedient")
    await given_up(task)
    assert await player.left() == ["cancelled"]
    assert await looped.call_one(0, Looped.pid) == looped.pids[0] == player.pid


async def test_kill_after_spares_a_worker_that_has_not_begun_the_call(plain: WorkerGroup[Plain], stage: Stage) -> None:
    standing = asyncio.ensure_future(plain.call_one(0, Plain.at, "legitimate", "its result"))
    player = await stage.entered("legitimate")
    await given_up_at_once(plain)
    await asyncio.sleep(0.01)  # kill_after is 0
    await plain.call_one(1, Plain.echo)
    player.go()
    assert await standing == "its result"


async def given_up_at_once(plain: WorkerGroup[Plain]) -> None:
    task = asyncio.create_task(plain.options(kill_after=0).call_one(0, Plain.run, "behind it"))
    await asyncio.sleep(0)
    await given_up(task)


async def test_long_calls_do_not_use_up_the_room_of_others(looped: WorkerGroup[Looped], stage: Stage) -> None:
    """Room in a ring is given back in order, so a call that lasts must not keep its own."""
    lasting = asyncio.create_task(looped.call_one(0, Looped.at, "lasting"))
    player = await stage.entered("lasting")
    for number in range(20):
        assert len(await looped.call_one(0, Looped.echo, bytes(RING // 8))) == RING // 8, number
    await given_up(lasting)
    assert await player.left() == ["cancelled"]


async def test_a_cancel_gets_past_what_waits_for_room(group: WorkerGroup[Any], stage: Stage) -> None:
    """After a few parts at most: each of them gives room to one of the calls that came before the cancel."""
    parts = stream(group, 0, "parts", "in the way", 1 << 30)
    first = asyncio.ensure_future(parts.__anext__())
    player = await stage.entered("in the way")
    player.go()
    assert await first == 0
    others = [asyncio.ensure_future(group.call_one(0, "echo", bytes(RING // 2))) for _ in range(4)]
    await group.call_one(1, "echo")
    await parts.aclose()
    leaving = asyncio.ensure_future(player.left())
    while not leaving.done():
        player.go()
        await group.call_one(1, "echo")
    assert leaving.result() in (["closed"], ["cancelled"])
    assert [len(answer) for answer in await asyncio.gather(*others)] == [RING // 2] * 4
