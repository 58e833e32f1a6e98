"""Calls of everybody when somebody dies, workers that stand still, and calls that are worth a kill."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

import pytest
from mortal import WAYS_TO_DIE, AsyncMortal, Mortal, Ordered
from traces import Traces, assert_died, eventually, outcome_of

from aiospin.workers import WorkerDied

KILLED = WAYS_TO_DIE["kill"]


# calls of everybody


async def test_a_death_ends_a_call_of_everybody_at_once(traces: Traces) -> None:
    """The others are told to give up; the next call finds everybody again."""
    async with traces.group(AsyncMortal, 3, start_method="spawn") as group:
        call = asyncio.ensure_future(group.call("hold", "together"))
        await traces.seen("began together", 3)
        pid = group.pids[1]
        os.kill(pid, signal.SIGKILL)
        assert_died(await outcome_of(call), rank=1, pid=pid, reason=KILLED, name="hold")
        await traces.seen("cancelled together", 2)
        assert await group.call("note", "again") == ["again"] * 3
    assert traces.counted("ran") == {"again": 3}


async def test_others_go_on_with_what_they_do_not_hear_of(traces: Traces) -> None:
    """Sync methods run to their end for nobody, and what was called for everybody meanwhile comes after it."""
    async with traces.group(Mortal, 2) as group:
        call = asyncio.ensure_future(group.call("hold", "together"))
        await traces.seen("began together", 2)
        os.kill(group.pids[0], signal.SIGKILL)
        assert isinstance(await outcome_of(call), WorkerDied)
        next_one = asyncio.ensure_future(group.call("note", "next"))
        await traces.seen("ran next")
        assert not next_one.done()
        traces.open("together")
        assert await next_one == ["next", "next"]
    assert traces.after("ended") == ["together"]


async def test_calls_of_everybody_wait_for_a_successor_and_keep_their_order(traces: Traces) -> None:
    """What lies in the ring and what is sent to each alone must not overtake each other, on any rank."""
    async with traces.group(Ordered, 3, pipeline=8) as group:
        calls = [asyncio.ensure_future(group.call("take", number)) for number in range(3)]
        await asyncio.sleep(0)
        os.kill(group.pids[2], signal.SIGSTOP)
        calls += [asyncio.ensure_future(group.call("take", number)) for number in range(3, 6)]
        await asyncio.sleep(0)
        os.kill(group.pids[2], signal.SIGKILL)
        calls += [asyncio.ensure_future(group.call("take", number)) for number in range(6, 9)]
        await eventually(lambda: group.pids[2] == 0)
        calls += [asyncio.ensure_future(group.call("take", number)) for number in range(9, 12)]
        outcomes = [await outcome_of(call) for call in calls]
        died = [number for number, outcome in enumerate(outcomes) if isinstance(outcome, WorkerDied)]
        assert died in ([], [0], [1], [2])  # one had begun at most; the others were not lost with it
        assert [outcome for number, outcome in enumerate(outcomes) if number not in died] == [
            [number] * 3 for number in range(12) if number not in died
        ]
        for taken in await group.call("all_taken"):
            assert taken == sorted(set(taken))
            assert {*range(3, 12)} <= {*taken}


async def test_at_least_once_completes_a_call_of_everybody(traces: Traces) -> None:
    async with traces.group(Mortal, 3) as group:
        call = asyncio.ensure_future(group.options(delivery="at_least_once").call("hold", "together"))
        await traces.seen("began together", 3)
        os.kill(group.pids[2], signal.SIGKILL)
        await traces.seen("began together", 4)
        traces.open("together")
        assert await call == ["together"] * 3
    assert traces.counted("ended") == {"together": 3}


async def test_all_die_at_once(traces: Traces) -> None:
    async with traces.group(Mortal, 3, pipeline=4) as group:
        running = [asyncio.ensure_future(group.call_one(rank, "hold", f"{rank}")) for rank in range(3)]
        for rank in range(3):
            await traces.seen(f"began {rank}")
        waiting = [asyncio.ensure_future(group.call_one("any", "note", str(number))) for number in range(12)]
        mine = [asyncio.ensure_future(group.call_one(rank, "note", f"mine {rank}")) for rank in range(3)]
        await asyncio.sleep(0)
        pids = group.pids
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        for rank, call in enumerate(running):
            assert_died(await outcome_of(call), rank=rank, pid=pids[rank], reason=KILLED, name="hold")
        assert await asyncio.gather(*waiting) == [str(number) for number in range(12)]
        assert await asyncio.gather(*mine) == [f"mine {rank}" for rank in range(3)]
        assert not set(pids) & set(await group.call("pid"))
    assert set(traces.counted("ran").values()) == {1}


# standing still


@pytest.mark.parametrize("kind", [Mortal, AsyncMortal])
async def test_a_worker_that_is_stopped_for_a_while_loses_nothing(traces: Traces, kind: Any) -> None:
    """Time-outs hold meanwhile, others go on, and it goes on where it was."""
    async with traces.group(kind, 2, restart=None) as group:
        await group.call("pid")
        os.kill(group.pids[0], signal.SIGSTOP)
        waiting = [asyncio.ensure_future(group.call_one(0, "note", str(number))) for number in range(100)]
        everybody = asyncio.ensure_future(group.call("note", "everybody"))
        with pytest.raises(TimeoutError):
            await group.options(timeout=0.01).call_one(0, "note", "too late")
        assert await group.call_one(1, "note", "beside") == "beside"
        await traces.seen("ran everybody")
        assert not everybody.done()
        os.kill(group.pids[0], signal.SIGCONT)
        assert await asyncio.gather(*waiting) == [str(number) for number in range(100)]
        assert await everybody == ["everybody"] * 2
    counted = traces.counted("ran")
    assert counted == {**{str(number): 1 for number in range(100)}, "everybody": 2, "beside": 1}


# worth a kill


async def test_kill_after_frees_a_worker_from_what_nobody_waits_for(traces: Traces) -> None:
    async with traces.group(Mortal, pipeline=4) as group:
        pid = group.pids[0]
        long = asyncio.ensure_future(group.options(kill_after=0.01).call_one(0, "hold", "long"))
        await traces.seen("began long")
        waiting = [asyncio.ensure_future(group.call_one(0, "note", word)) for word in "abc"]
        await asyncio.sleep(0)
        long.cancel()
        assert await asyncio.gather(*waiting) == ["a", "b", "c"]
        assert await group.call_one(0, "pid") != pid
    assert traces.after("ran") == ["a", "b", "c"]


async def test_kill_after_spares_a_worker_that_has_not_begun_the_call(traces: Traces) -> None:
    async with traces.group(Mortal, pipeline=4) as group:
        pid = group.pids[0]
        long = asyncio.ensure_future(group.call_one(0, "hold", "long"))
        await traces.seen("began long")
        behind = asyncio.ensure_future(group.options(kill_after=0.0).call_one(0, "note", "behind"))
        await asyncio.sleep(0)
        behind.cancel()
        await asyncio.wait([behind])
        traces.open("long")
        assert await long == "long"
        assert await group.call_one(0, "pid") == pid
    assert traces.after("ran") == []
