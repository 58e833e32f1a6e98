"""Delivering again, and giving up: how often a call is handed out, and how often a rank is filled."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

import pytest
from mortal import WAYS_TO_DIE, AsyncMortal, Mortal
from traces import Traces, assert_died, outcome_of

from aiospin.workers import Restart, WorkerDied, WorkerGroup

KILLED = WAYS_TO_DIE["kill"]
NEVER = 1e6  # seconds


def state_of(group: WorkerGroup[Any], rank: int) -> str:
    return group.statistics().workers[rank].state


# deliveries


@pytest.mark.parametrize("kind", [Mortal, AsyncMortal])
async def test_what_had_begun_is_delivered_again(traces: Traces, kind: Any) -> None:
    async with traces.group(kind, start_method="spawn") as group:
        twice = group.options(delivery="at_least_once")
        calls = [twice.call_one(0, "die_once", "kill", "deadly"), twice.call_one(0, "note", "beside")]
        assert await asyncio.gather(*calls) == ["deadly", "beside"]
    assert traces.counted("ran")["deadly"] == 2
    assert traces.counted("ran")["beside"] >= 1


async def test_a_poisonous_call_stops_at_its_second_worker(traces: Traces) -> None:
    """Those behind it run once each, in order, on the third."""
    async with traces.group(Mortal, delivery="at_least_once", pipeline=4) as group:
        poison = asyncio.ensure_future(group.call_one(0, "die", "kill", "poison"))
        behind = [asyncio.ensure_future(group.call_one(0, "note", str(number))) for number in range(7)]
        error = await outcome_of(poison)
        assert await asyncio.gather(*behind) == [str(number) for number in range(7)]
    second = int(traces.after("made")[1])
    assert_died(error, rank=0, pid=second, reason=KILLED, name="die", deliveries=2)
    assert str(error).endswith("while it had die(), as had one before it")
    assert traces.after("ran") == ["poison", "poison", *(str(number) for number in range(7))]


@pytest.mark.parametrize(("most", "text"), [(1, "die()"), (3, "die(), as had 2 before it")])
async def test_max_deliveries_is_the_number_of_workers_that_may_die_of_a_call(
    traces: Traces, most: int, text: str
) -> None:
    async with traces.group(Mortal, delivery="at_least_once", max_deliveries=most) as group:
        with pytest.raises(WorkerDied) as caught:
            await group.call_one("any", "die", "kill", "poison")
        assert caught.value.deliveries == most
        assert str(caught.value).endswith(text)
        assert await group.call_one("any", "note", "well") == "well"
    assert traces.after("ran") == ["poison"] * most + ["well"]


async def test_a_call_that_waited_behind_the_dead_has_its_deliveries_before_it(traces: Traces) -> None:
    """It lay in three workers that died of others, and is still delivered twice."""
    async with traces.group(Mortal, delivery="at_least_once", pipeline=4) as group:
        deadly = [asyncio.ensure_future(group.call_one(0, "die", "kill", str(number))) for number in range(2)]
        last = asyncio.ensure_future(group.call_one(0, "die_once", "kill", "last"))
        for call in deadly:
            assert (await outcome_of(call)).deliveries == 2
        assert await last == "last"
    assert traces.after("ran") == ["0", "0", "1", "1", "last", "last"]


async def test_a_call_that_is_over_time_is_not_delivered_again(traces: Traces) -> None:
    async with traces.group(Mortal, delivery="at_least_once") as group:
        with pytest.raises(TimeoutError, match=r"hold\(\) of worker 0 did not end within 0.01 s"):
            await group.options(timeout=0.01, kill_after=0.0).call_one(0, "hold", "long")
        assert await group.call_one(0, "note", "next") == "next"
    assert traces.counted("began")["long"] <= 1


# who goes on meanwhile


async def test_others_take_what_any_may_do_while_a_rank_is_empty(traces: Traces) -> None:
    async with traces.group(Mortal, 2, restart=Restart(first=NEVER, most=NEVER)) as group:
        ahead = [asyncio.ensure_future(group.call_one("any", "hold", word)) for word in ("one", "two")]
        for word in ("one", "two"):
            await traces.seen(f"began {word}")
        waiting = [asyncio.ensure_future(group.call_one("any", "note", str(number))) for number in range(6)]
        mine = asyncio.ensure_future(group.call_one(0, "note", "mine"))
        everybody = asyncio.ensure_future(group.call("note", "everybody"))
        await asyncio.sleep(0)
        os.kill(group.pids[0], signal.SIGKILL)
        assert isinstance(await outcome_of(ahead[0]), WorkerDied)
        assert state_of(group, 0) == "down"
        traces.open("two")
        assert await ahead[1] == "two"
        assert sorted(await asyncio.gather(*waiting)) == ["0", "1", "2", "3", "4", "5"]
        await traces.seen("ran everybody")
        assert not mine.done() and not everybody.done()
        mine.cancel()
        everybody.cancel()
        await asyncio.wait([mine, everybody])
    counted = traces.counted("ran")
    assert counted == {**{str(number): 1 for number in range(6)}, "everybody": 1}


# giving up


async def test_a_rank_is_given_up_after_its_attempts(traces: Traces, caplog: pytest.LogCaptureFixture) -> None:
    """Its calls fail with what happened last; the others go on."""
    async with traces.group(Mortal, 2, restart=Restart(first=0.001, factor=4.0, attempts=2)) as group:
        for times in range(1, 4):
            holding = asyncio.ensure_future(group.call_one(0, "hold", "never"))
            await traces.seen("began never", times)
            pid = group.pids[0]
            os.kill(pid, signal.SIGKILL)
            assert isinstance(await outcome_of(holding), WorkerDied)
        assert [state_of(group, rank) for rank in (0, 1)] == ["given up", "up"]
        with pytest.raises(WorkerDied) as caught:
            await group.call_one(0, "note", "nobody")
        assert (caught.value.rank, caught.value.pid, caught.value.reason) == (0, pid, KILLED)
        with pytest.raises(WorkerDied):
            await group.call("pid")
        with pytest.raises(WorkerDied):
            await anext(group.stream(0, "count", "nobody", 1))
        assert await group.call_one("any", "note", "somebody") == "somebody"
    assert traces.after("ran") == ["somebody"]
    told = [line.partition("; ")[2] for line in caplog.messages]
    assert told == ["a successor starts in 0.001 s", "a successor starts in 0.004 s", "the rank is given up"]


async def test_an_answer_begins_the_count_anew(traces: Traces) -> None:
    async with traces.group(Mortal, restart=Restart(first=0.0, attempts=1)) as group:
        for number in range(4):
            assert await group.call_one(0, "note", str(number)) == str(number)
            with pytest.raises(WorkerDied):
                await group.call_one(0, "die", "kill")
        assert await group.call_one(0, "pid") == group.pids[0]
        assert group.statistics().workers[0].starts == 5


async def test_when_all_are_given_up_everything_that_waits_fails(traces: Traces) -> None:
    async with traces.group(Mortal, 2, restart=None, delivery="at_least_once") as group:
        holding = [asyncio.ensure_future(group.call_one(rank, "hold", "never")) for rank in (0, 1)]
        await traces.seen("began never", 2)
        waiting = [asyncio.ensure_future(group.call_one("any", "note", str(number))) for number in range(20)]
        mine = asyncio.ensure_future(group.call_one(0, "note", "mine"))
        await asyncio.sleep(0)
        first, second = group.pids
        os.kill(first, signal.SIGKILL)
        error = await outcome_of(mine)
        assert (error.rank, error.pid, error.reason) == (0, first, KILLED)
        assert not any(call.done() for call in waiting)
        os.kill(second, signal.SIGKILL)
        for call in [*holding, *waiting]:
            error = await outcome_of(call)
            assert isinstance(error, WorkerDied) and error.reason == KILLED
        with pytest.raises(WorkerDied):
            await group.call_one("any", "note", "late")
        with pytest.raises(WorkerDied):
            await group.call("note", "late")
        assert group.pids == (0, 0)
        assert group.statistics().pending == 0
    assert traces.after("ran") == []
