"""What becomes of calls when their worker dies: those that had begun fail with what happened, the others go on.

Guarantee: `counted("ran")` counts executions across all workers, the dead included, so no test takes an answer's word
for how often something ran.
"""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

import pytest
from ends import until
from mortal import WAYS_TO_DIE, AsyncMortal, Mortal, pattern
from traces import Traces, assert_died, eventually, is_gone, outcome_of

from aiospin import PeerDied
from aiospin.workers import WorkerDied, WorkerGroup

KILLED = WAYS_TO_DIE["kill"]


def kill(group: WorkerGroup[Any], rank: int = 0) -> int:
    """SIGKILL; the pid."""
    pid = group.pids[rank]
    os.kill(pid, signal.SIGKILL)
    return pid


# what is told


@pytest.mark.parametrize("kind", [Mortal, AsyncMortal])
async def test_every_way_to_die_is_told_and_survived(traces: Traces, kind: Any) -> None:
    async with traces.group(kind) as group:
        for how, reason in WAYS_TO_DIE.items():
            pid = await group.call_one(0, "pid")
            with pytest.raises(PeerDied) as caught:
                await group.call_one(0, "die", how)
            assert_died(caught.value, rank=0, pid=pid, reason=reason, name="die")
        assert await group.call_one(0, "pid") not in {0, pid}
    assert traces.counted("ran") == dict.fromkeys(WAYS_TO_DIE, 1)


@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
async def test_an_idle_worker_dies_and_nobody_is_told(
    traces: Traces, method: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with traces.group(Mortal, 2, start_method=method) as group:
        pid = await group.call_one(1, "pid")
        assert kill(group, 1) == pid
        await eventually(lambda: group.pids[1] not in (0, pid))
        assert group.pids[1] == await group.call_one(1, "pid")
        assert await group.call("pid") == list(group.pids)
    assert f"worker 1 (pid {pid}) {KILLED}; a successor starts in 0 s" in caplog.text


async def test_a_child_of_the_worker_that_lives_on_hides_no_death(traces: Traces) -> None:
    """It has inherited the worker's descriptors, and with them what multiprocessing watches."""
    async with traces.group(Mortal) as group:
        pid = group.pids[0]
        child = await group.call_one(0, "bear")
        try:
            with pytest.raises(WorkerDied):
                await group.call_one(0, "die", "kill")
            assert await group.call_one(0, "pid") != pid
        finally:
            os.kill(child, signal.SIGKILL)


# what had not begun


@pytest.mark.parametrize("delivery", ["at_most_once", "at_least_once"])
async def test_what_waits_goes_to_the_successor_in_order(traces: Traces, delivery: Any) -> None:
    """Three lie ahead of their turn in the worker, six wait for it in the group."""
    async with traces.group(Mortal, delivery=delivery, pipeline=4, start_method="spawn") as group:
        holding = asyncio.ensure_future(group.call_one(0, "hold", "first"))
        waiting = [asyncio.ensure_future(group.call_one(0, "note", str(number))) for number in range(9)]
        await traces.seen("began first")
        assert group.statistics().workers[0].waiting == 6
        pid = kill(group)
        if delivery == "at_most_once":
            assert_died(await outcome_of(holding), rank=0, pid=pid, reason=KILLED, name="hold")
        else:
            await traces.seen("began first", 2)
            traces.open("first")
            assert await holding == "first"
        assert await asyncio.gather(*waiting) == [str(number) for number in range(9)]
    assert traces.after("ran") == [str(number) for number in range(9)]
    assert len(traces.after("began")) == (1 if delivery == "at_most_once" else 2)


async def test_calls_beside_each_other_die_together(traces: Traces) -> None:
    async with traces.group(AsyncMortal, pipeline=3) as group:
        begun = [asyncio.ensure_future(group.call_one(0, "hold", f"hold-{number}")) for number in range(3)]
        waiting = [asyncio.ensure_future(group.call_one("any", "note", str(number))) for number in range(5)]
        for number in range(3):
            await traces.seen(f"began hold-{number}")
        pid = kill(group)
        for call in begun:
            assert_died(await outcome_of(call), rank=0, pid=pid, reason=KILLED, name="hold")
        assert await asyncio.gather(*waiting) == ["0", "1", "2", "3", "4"]
    assert traces.after("ran") == ["0", "1", "2", "3", "4"]


@pytest.mark.parametrize("kind", [Mortal, AsyncMortal])
async def test_what_was_published_and_not_taken_had_not_begun(traces: Traces, kind: Any) -> None:
    async with traces.group(kind, pipeline=4) as group:
        pid = await group.call_one(0, "pid")
        os.kill(pid, signal.SIGSTOP)
        calls = [asyncio.ensure_future(group.call_one(0, "note", word)) for word in "abc"]
        await eventually(lambda: group.statistics().workers[0].calls == 3)
        kill(group)
        assert await asyncio.gather(*calls) == ["a", "b", "c"]
    assert traces.after("ran") == ["a", "b", "c"]


async def test_a_neighbour_that_leaves_by_sys_exit_takes_all_along(traces: Traces) -> None:
    async with traces.group(AsyncMortal) as group:
        pid = group.pids[0]
        beside = asyncio.ensure_future(group.call_one(0, "hold", "beside"))
        await traces.seen("began beside")
        with pytest.raises(WorkerDied):
            await group.call_one(0, "die", "exit")
        assert_died(await outcome_of(beside), rank=0, pid=pid, reason=WAYS_TO_DIE["exit"], name="hold")


async def test_a_call_that_was_given_up_is_not_run_again(traces: Traces) -> None:
    """Neither the one that runs nor the one that waits, though both may be delivered twice."""
    async with traces.group(Mortal, delivery="at_least_once", pipeline=4) as group:
        running = asyncio.ensure_future(group.call_one(0, "hold", "running"))
        waiting = asyncio.ensure_future(group.call_one(0, "note", "waiting"))
        last = asyncio.ensure_future(group.call_one(0, "note", "last"))
        await traces.seen("began running")
        running.cancel()
        waiting.cancel()
        await asyncio.wait([running, waiting])
        kill(group)
        assert await last == "last"
    assert traces.after("ran") == ["last"]
    assert traces.after("began") == ["running"]


# what had been answered


@pytest.mark.parametrize("first", ["the reply", "the end"])
async def test_a_reply_that_was_published_counts(traces: Traces, first: str) -> None:
    """1. The loop stands still, the worker answers and dies. 2. The loop goes on, and hears of both at once."""
    async with traces.group(Mortal) as group:
        call = asyncio.ensure_future(group.call_one(0, "hold", "answer"))
        await traces.seen("began answer")
        link: Any = group._crew._berths[0].link
        pid = group.pids[0]
        traces.open("answer")
        until(lambda: link._replies.statistics().published > 0 and link._replies.statistics().depth > 0)
        kill(group)
        until(lambda: is_gone(pid))
        if first == "the end":
            link._on_end()
        assert await call == "answer"
        assert await group.call_one(0, "pid") != pid
    assert traces.after("ended") == ["answer"]


async def test_a_view_of_a_reply_outlives_the_worker(traces: Traces) -> None:
    async with traces.group(Mortal, in_place=True) as group:
        pid = group.pids[0]
        view = await group.call_one(0, "view", 1 << 16)
        kill(group)
        assert await group.call_one(0, "pid") != pid
        assert await group.call_one(0, "view", 1 << 16) == view
    assert view == pattern(1 << 16)
    view.release()


async def test_an_answer_is_let_go_of_with_its_last_view(traces: Traces) -> None:
    """Whoever keeps the error of a call that died keeps no answers of others, which would fill the successor's ring."""
    async with traces.group(Mortal, pipeline=8, capacity=1 << 16, in_place=True) as group:
        holding = asyncio.ensure_future(group.call_one(0, "hold", "for ever"))
        await traces.seen("began for ever")
        waiting = [asyncio.ensure_future(group.call_one(0, "view", 20480)) for _ in range(3)]
        await asyncio.sleep(0)
        kill(group)
        error = await outcome_of(holding)
        del holding
        assert {bytes(view) for view in await asyncio.gather(*waiting)} == {pattern(20480)}
        del waiting
        for _ in range(10):
            assert await group.options(timeout=30.0).call_one(0, "view", 20480) == pattern(20480)
        assert isinstance(error, WorkerDied)


# streams


@pytest.mark.parametrize("kind", [Mortal, AsyncMortal])
async def test_a_stream_breaks_off_and_is_not_begun_anew(traces: Traces, kind: Any) -> None:
    async with traces.group(kind, delivery="at_least_once", pipeline=1) as group:
        pid = group.pids[0]
        broken = group.stream(0, "count", "broken", 3, "kill")
        assert await anext(broken) == 0

        async def take(*arguments: object) -> list[int]:
            return [number async for number in group.stream(0, "count", *arguments)]

        waiting = asyncio.ensure_future(take("waiting", 4))
        await asyncio.sleep(0)
        got = []
        with pytest.raises(WorkerDied) as caught:
            async for number in broken:
                got.append(number)
        assert_died(caught.value, rank=0, pid=pid, reason=KILLED, name="count")
        assert got == [1, 2]
        assert await waiting == [0, 1, 2, 3]
    assert traces.counted("ran") == {"broken": 1, "waiting": 1}
