"""`restart(rank)`: a worker is replaced on purpose, and nothing is lost by it."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

import pytest
from mortal import AsyncMortal, Mortal
from traces import Traces, eventually, outcome_of

from aiospin import QueueClosed
from aiospin.workers import Restart, StartFailed, WorkerDied


@pytest.mark.parametrize("kind", [Mortal, AsyncMortal])
async def test_what_a_worker_has_ends_before_it_does(traces: Traces, kind: Any) -> None:
    """1. It runs one call, and has another. 2. It is replaced. 3. New calls wait for its successor."""
    async with traces.group(kind, pipeline=2, start_method="spawn") as group:
        pid = group.pids[0]
        running = asyncio.ensure_future(group.call_one(0, "hold", "running"))
        ahead = asyncio.ensure_future(group.call_one(0, "pid"))
        await traces.seen("began running")
        restarting = asyncio.ensure_future(group.restart(0))
        await eventually(lambda: group.statistics().workers[0].state == "leaving")
        after = asyncio.ensure_future(group.call_one(0, "pid"))
        traces.open("running")
        assert await running == "running"
        assert await ahead == pid
        await restarting
        assert group.statistics().workers[0].state == "up"
        assert await after == group.pids[0] != pid
    assert traces.after("ended") == ["running"]
    assert traces.after("closed")[0] == str(pid)


async def test_others_take_what_any_may_do_meanwhile(traces: Traces) -> None:
    async with traces.group(Mortal, 2) as group:
        pids = group.pids
        running = asyncio.ensure_future(group.call_one(0, "hold", "running"))
        await traces.seen("began running")
        restarting = asyncio.ensure_future(group.restart(0))
        for _ in range(5):
            assert await group.call_one("any", "pid") == pids[1]
        everybody = asyncio.ensure_future(group.call("pid"))
        traces.open("running")
        await restarting
        assert await running == "running"
        assert await everybody == [group.pids[0], pids[1]]
        assert group.pids[0] != pids[0]


async def test_restarts_of_one_rank_at_once_are_one(traces: Traces) -> None:
    async with traces.group(Mortal) as group:
        running = asyncio.ensure_future(group.call_one(0, "hold", "running"))
        await traces.seen("began running")
        restarting = [asyncio.ensure_future(group.restart(0)) for _ in range(3)]
        await asyncio.sleep(0)
        traces.open("running")
        await asyncio.gather(running, *restarting)
        assert group.statistics().workers[0].starts == 2


async def test_cancelling_stops_waiting_and_not_the_restart(traces: Traces) -> None:
    async with traces.group(Mortal) as group:
        pid = group.pids[0]
        running = asyncio.ensure_future(group.call_one(0, "hold", "running"))
        await traces.seen("began running")
        restarting = asyncio.ensure_future(group.restart(0))
        await asyncio.sleep(0)
        restarting.cancel()
        await asyncio.wait([restarting])
        traces.open("running")
        assert await running == "running"
        assert await group.call_one(0, "pid") != pid


async def test_a_worker_that_dies_while_it_leaves_is_succeeded_at_once(traces: Traces) -> None:
    """Which was wanted anyway, so it is no failure."""
    async with traces.group(Mortal, restart=Restart(first=1e6, most=1e6, attempts=0)) as group:
        running = asyncio.ensure_future(group.call_one(0, "hold", "running"))
        await traces.seen("began running")
        restarting = asyncio.ensure_future(group.restart(0))
        await asyncio.sleep(0)
        os.kill(group.pids[0], signal.SIGKILL)
        assert isinstance(await outcome_of(running), WorkerDied)
        await restarting
        assert await group.call_one(0, "note", "well") == "well"


async def test_a_rank_that_was_given_up_is_filled_again(traces: Traces) -> None:
    async with traces.group(Mortal, restart=None) as group:
        for number in range(2):
            with pytest.raises(WorkerDied):
                await group.call_one(0, "die", "kill")
            with pytest.raises(WorkerDied):
                await group.call_one("any", "note", "nobody")
            await group.restart(0)
            assert await group.call_one(0, "note", str(number)) == str(number)
    assert traces.after("ran") == ["kill", "0", "kill", "1"]


async def test_a_restart_that_fails_says_so_and_the_rank_stays_given_up(traces: Traces) -> None:
    """And a later one may succeed."""
    async with traces.group(Mortal, restart=None) as group:
        traces.open("refuse")
        with pytest.raises(StartFailed, match="worker 0 could not be started: ValueError: refused"):
            await group.restart(0)
        with pytest.raises(StartFailed):
            await group.call_one(0, "note", "nobody")
        traces.shut("refuse")
        await group.restart(0)
        assert await group.call_one(0, "note", "well") == "well"


async def test_a_restart_ends_with_the_group(traces: Traces) -> None:
    async with traces.group(Mortal) as group:
        running = asyncio.ensure_future(group.call_one(0, "hold", "running"))
        await traces.seen("began running")
        restarting = asyncio.ensure_future(group.restart(0))
        await asyncio.sleep(0)
        closing = asyncio.ensure_future(group.aclose())
        await asyncio.sleep(0)
        traces.open("running")
        assert await running == "running"
        assert isinstance(await outcome_of(restarting), QueueClosed)
        await closing
        with pytest.raises(QueueClosed):
            await group.restart(0)


async def test_only_ranks_can_be_restarted(traces: Traces) -> None:
    async with traces.group(Mortal) as group:
        with pytest.raises(ValueError, match="from 0 to 0, got 1"):
            await group.restart(1)
        with pytest.raises(TypeError):
            await group.restart(True)
        assert group.statistics().workers[0].starts == 1


@pytest.mark.parametrize("kind", [Mortal, AsyncMortal])
async def test_all_in_turn_under_load_and_nothing_is_lost(traces: Traces, kind: Any) -> None:
    """Eight clients call without a pause; every call runs once."""
    over = False
    answered: list[str] = []

    async def client(name: int) -> None:
        number = 0
        while not over:
            word = f"{name}-{number}"
            rank = "any" if number % 3 else number % 2
            assert await group.call_one(rank, "note", word) == word
            answered.append(word)
            number += 1

    async with traces.group(kind, 2) as group:
        clients = [asyncio.ensure_future(client(name)) for name in range(8)]
        before = set(group.pids)
        for rank in (0, 1, 0, 1):
            await group.restart(rank)
        over = True
        await asyncio.gather(*clients)
        assert not before & set(group.pids)
        assert [worker.starts for worker in group.statistics().workers] == [3, 3]
    assert traces.counted("ran") == dict.fromkeys(answered, 1)
