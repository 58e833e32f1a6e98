"""Calls of every worker at once: one failure ends them everywhere, and they begin in the same order on every rank.

The order is what collective operations need: two workers that each begin with another of two calls wait for each other
for ever. It must hold when the broadcast ring is full, for messages larger than the ring, when some calls are given up
while they wait for room, and with calls of single ranks in between.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
import pytest_asyncio
from hosted import KnownError, Looped, Plain
from stage import Stage, settle

from aiospin.workers import WorkerGroup

pytestmark = pytest.mark.asyncio(loop_scope="module")

SMALL_RING = 1 << 16


async def test_one_failure_cancels_the_others_at_once(looped: WorkerGroup[Looped], stage: Stage) -> None:
    calling = asyncio.ensure_future(looped.call(Looped.at, "to fail"))
    players = {player.pid: player for player in [await stage.entered("to fail") for _ in range(2)]}
    players[looped.pids[1]].go("so there")
    assert await players[looped.pids[0]].left() == ["cancelled"]
    with pytest.raises(KnownError, match="so there"):
        await calling


async def test_a_sync_method_that_others_gave_up_runs_on_for_nobody(plain: WorkerGroup[Plain], stage: Stage) -> None:
    calling = asyncio.ensure_future(plain.call(Plain.at, "runs on", "discarded"))
    players = {player.pid: player for player in [await stage.entered("runs on") for _ in range(2)]}
    players[plain.pids[0]].go("so there")
    with pytest.raises(KnownError, match="so there"):
        await calling
    assert plain.statistics().pending == 1
    after = asyncio.ensure_future(plain.call_one(1, Plain.echo, "its own"))
    players[plain.pids[1]].go()
    assert await players[plain.pids[1]].left() == []
    assert await after == "its own"


async def test_two_failures_are_one_error(group: WorkerGroup[Any], stage: Stage) -> None:
    calling = asyncio.ensure_future(group.call("at", "both fail"))
    for player in [await stage.entered("both fail") for _ in range(2)]:
        player.go("both")
    with pytest.raises(KnownError, match="both"):
        await calling


async def test_cancelling_cancels_on_every_worker(looped: WorkerGroup[Looped], stage: Stage) -> None:
    calling = asyncio.ensure_future(looped.call(Looped.at, "everywhere"))
    players = [await stage.entered("everywhere") for _ in range(2)]
    calling.cancel()
    for player in players:
        assert await player.left() == ["cancelled"]
    with pytest.raises(asyncio.CancelledError):
        await calling


async def test_one_that_is_cancelled_before_its_turn_runs_nowhere(plain: WorkerGroup[Plain], stage: Stage) -> None:
    busy = [asyncio.ensure_future(plain.call_one(rank, Plain.at, f"turn {rank}")) for rank in range(2)]
    players = [await stage.entered(f"turn {rank}") for rank in range(2)]
    calling = asyncio.ensure_future(plain.call(Plain.run, "never"))
    await asyncio.sleep(0)
    assert plain.statistics().pending == 4
    calling.cancel()
    await asyncio.wait([calling])
    for player in players:
        player.go()
    await asyncio.gather(*busy)
    assert all("never" not in ran for ran in await plain.call(Plain.what_ran))


async def test_a_failure_on_one_spares_another_collective(looped: WorkerGroup[Looped], stage: Stage) -> None:
    failing = asyncio.ensure_future(looped.call(Looped.at, "failing"))
    other = asyncio.ensure_future(looped.call(Looped.at, "other", "unharmed"))
    (await stage.entered("failing")).go("so there")
    with pytest.raises(KnownError):
        await failing
    for _ in range(2):
        (await stage.entered("other")).go()
    assert await other == ["unharmed"] * 2


async def test_calls_for_all_keep_their_order_behind_one_that_is_busy(plain: WorkerGroup[Plain], stage: Stage) -> None:
    busy = asyncio.ensure_future(plain.call_one(0, Plain.at, "first of all"))
    player = await stage.entered("first of all")
    names = [f"in order {number}" for number in range(20)]
    calls = [asyncio.ensure_future(plain.call(Plain.run, name)) for name in names]
    await plain.call_one(1, Plain.echo)  # the other one is ahead by now
    player.go()
    assert await asyncio.gather(*calls) == [[name, name] for name in names]
    for ran in await plain.call(Plain.what_ran):
        assert [name for name in ran if name.startswith("in order")] == names
    await busy


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def small_rings(stage: Stage) -> AsyncIterator[Mapping[str, WorkerGroup[Any]]]:
    """Three workers of each kind, whose rings are full soon."""
    async with (
        WorkerGroup(Plain, 3, args=(stage.address,), capacity=SMALL_RING) as plain,
        WorkerGroup(Looped, 3, args=(stage.address,), capacity=SMALL_RING) as looped,
    ):
        yield {"sync": plain, "async": looped}


@pytest_asyncio.fixture(loop_scope="module")
async def tight(small_rings: Mapping[str, WorkerGroup[Any]], kind: str) -> AsyncIterator[WorkerGroup[Any]]:
    """One of them, with nothing left pending by the test."""
    yield small_rings[kind]
    await settle(small_rings[kind])


async def orders(group: WorkerGroup[Any], prefix: str) -> list[list[str]]:
    """What ran on each rank, of the names that begin so."""
    return [[name for name in ran if name.startswith(prefix)] for ran in await group.call("what_ran")]


async def test_none_overtakes_one_that_was_too_large_for_the_ring(tight: WorkerGroup[Any], stage: Stage) -> None:
    """The large one goes to each rank alone, and may wait there; the small one would find room in the ring."""
    busy = asyncio.ensure_future(tight.call_one(0, "at", "busy"))
    player = await stage.entered("busy")
    sizes = (SMALL_RING, 10, SMALL_RING // 2 - 200, SMALL_RING * 3, 10)
    names = [f"sized {number}" for number in range(len(sizes))]
    calls = [
        asyncio.ensure_future(tight.call("run", name, bytes(size))) for name, size in zip(names, sizes, strict=True)
    ]
    await tight.call_one(1, "echo")
    player.go()
    await asyncio.gather(busy, *calls)
    assert await orders(tight, "sized") == [names] * 3


async def test_given_up_calls_do_not_keep_the_ring(tight: WorkerGroup[Any], stage: Stage) -> None:
    """A worker that never began them must take them out all the same."""
    busy = asyncio.ensure_future(tight.call_one(0, "at", "busy"))
    player = await stage.entered("busy")
    for _ in range(2):
        calls = [asyncio.ensure_future(tight.call("run", "given up", bytes(SMALL_RING * 2 // 5))) for _ in range(2)]
        await asyncio.sleep(0)
        for call in calls:
            call.cancel()
        await asyncio.wait(calls)
    last = asyncio.ensure_future(tight.call("run", "the last", bytes(SMALL_RING * 2 // 5)))
    await tight.call_one(1, "echo")
    player.go()
    assert await last == ["the last"] * 3
    await busy


SIZES = (0, 100, 5000, SMALL_RING // 3, SMALL_RING // 2 + 1, SMALL_RING * 2)


@pytest.mark.parametrize("seed", range(3))
async def test_every_rank_begins_them_in_the_same_order(tight: WorkerGroup[Any], stage: Stage, seed: int) -> None:
    """A hundred calls at once, of all sizes, a third given up on the way, with calls of single ranks in between."""
    chance = random.Random(seed)
    busy = asyncio.ensure_future(tight.call_one(seed, "at", "busy"))
    player = await stage.entered("busy")
    kept: dict[str, asyncio.Future[Any]] = {}
    given_up: list[asyncio.Future[Any]] = []
    alone: list[asyncio.Future[Any]] = []
    for number in range(100):
        name = f"all {seed} {number}"
        call = asyncio.ensure_future(tight.call("run", name, bytes(chance.choice(SIZES))))
        if chance.random() < 0.33:
            given_up.append(call)
        else:
            kept[name] = call
        if chance.random() < 0.5:
            one = tight.call_one(chance.randrange(3), "run", f"one {number}", bytes(chance.choice(SIZES)))
            alone.append(asyncio.ensure_future(one))
        if chance.random() < 0.2:
            await asyncio.sleep(0)
        if given_up and chance.random() < 0.5:
            chance.choice(given_up).cancel()
        if number == 50:
            player.go()
    for waiting in given_up:
        waiting.cancel()
    await asyncio.gather(busy, *kept.values(), *alone)
    await asyncio.gather(*given_up, return_exceptions=True)
    ran = await orders(tight, f"all {seed}")
    assert all(len(set(of_one)) == len(of_one) for of_one in ran), "one ran twice"
    everywhere = set.intersection(*map(set, ran))
    in_common = [[name for name in of_one if name in everywhere] for of_one in ran]
    assert in_common[0] == in_common[1] == in_common[2]
    assert [name for name in in_common[0] if name in kept] == list(kept)
