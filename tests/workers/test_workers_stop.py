"""The end of a group: calls under way are drained, given up, or cut off after a while, and nothing is left."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from mortal import AsyncMortal, Mortal
from traces import Traces, eventually, is_gone, outcome_of

from aiospin import QueueClosed
from aiospin.workers import Restart, StartFailed, WorkerGroup, _crew, _process

NEVER = 1e6  # seconds


def assert_over(group: WorkerGroup[Any]) -> None:
    """Fail unless the group has no worker and no call."""
    assert group.pids == (0,) * group.size
    assert group.statistics().pending == 0


async def refuses_calls(group: WorkerGroup[Any]) -> None:
    """Fail unless every call raises QueueClosed."""
    for call in (group.call("pid"), group.call_one(0, "pid"), group.call_one("any", "pid")):
        with pytest.raises(QueueClosed, match="the group is closed"):
            await call
    with pytest.raises(QueueClosed):
        await anext(group.stream(0, "count", "never", 1))


# in order


@pytest.mark.parametrize("kind", [Mortal, AsyncMortal])
async def test_leaving_lets_calls_under_way_end(traces: Traces, kind: Any) -> None:
    """Those that run, those that wait in the workers, and those that wait in the group."""
    async with traces.group(kind, 2, pipeline=2, start_method="spawn") as group:
        pids = set(map(str, group.pids))
        running = [asyncio.ensure_future(group.call_one(rank, "hold", f"{rank}")) for rank in (0, 1)]
        for rank in (0, 1):
            await traces.seen(f"began {rank}")
        waiting = [asyncio.ensure_future(group.call_one("any", "note", str(number))) for number in range(20)]
        everybody = asyncio.ensure_future(group.call("note", "everybody"))
        parts: list[int] = []

        async def take() -> None:
            async for part in group.stream(1, "count", "stream", 5):
                parts.append(part)

        streaming = asyncio.ensure_future(take())
        await asyncio.sleep(0)
        asyncio.get_running_loop().call_soon(traces.open, "0")
        asyncio.get_running_loop().call_soon(traces.open, "1")
    assert await asyncio.gather(*running) == ["0", "1"]
    assert await asyncio.gather(*waiting) == [str(number) for number in range(20)]
    assert await everybody == ["everybody"] * 2
    await streaming
    assert parts == list(range(5))
    assert set(traces.after("closed")) == pids
    assert_over(group)
    await refuses_calls(group)


async def test_nothing_new_is_accepted_while_the_rest_ends(traces: Traces) -> None:
    async with traces.group(Mortal) as group:
        running = asyncio.ensure_future(group.call_one(0, "hold", "running"))
        await traces.seen("began running")
        closing = asyncio.ensure_future(group.aclose())
        await asyncio.sleep(0)
        await refuses_calls(group)
        assert not running.done()
        traces.open("running")
        await closing
        assert running.done() and await running == "running"


async def test_closing_twice_and_at_once(traces: Traces) -> None:
    """Whoever closes goes on only when the processes have ended."""
    async with traces.group(Mortal) as group:
        pid = group.pids[0]
        running = asyncio.ensure_future(group.call_one(0, "hold", "running"))
        await traces.seen("began running")
        closing = [asyncio.ensure_future(group.aclose()) for _ in range(3)]
        await asyncio.sleep(0)
        assert not any(one.done() for one in closing)
        closing.pop().cancel()  # its own wait ends; the others' does not
        traces.open("running")
        for one in closing:
            await one
            assert is_gone(pid)
        assert await running == "running"
        await group.aclose()
    assert_over(group)
    assert traces.after("closed") == [str(pid)]


async def test_a_group_is_entered_once(traces: Traces) -> None:
    group = traces.group(Mortal)
    with pytest.raises(QueueClosed, match="not entered yet"):
        await group.call("pid")
    await group.aclose()  # of no effect
    async with group:
        with pytest.raises(RuntimeError):
            await group.__aenter__()
    with pytest.raises(RuntimeError):
        await group.__aenter__()


async def test_what_waits_for_a_rank_without_a_worker_is_not_waited_for(traces: Traces) -> None:
    async with traces.group(Mortal, 2, restart=Restart(first=NEVER, most=NEVER), drain_timeout=None) as group:
        assert isinstance(await outcome_of(asyncio.ensure_future(group.call_one(0, "die", "kill"))), Exception)
        waiting = asyncio.ensure_future(group.call_one(0, "note", "never"))
        everybody = asyncio.ensure_future(group.call("note", "never"))
        await asyncio.sleep(0)
    for call in (waiting, everybody):
        assert isinstance(await outcome_of(call), QueueClosed)
    assert "never" not in traces.counted("ran") or traces.counted("ran")["never"] == 1  # on the other rank
    assert_over(group)


# by force


async def test_an_exception_gives_async_calls_up(traces: Traces) -> None:
    """They are cancelled in the worker, which then closes its object."""
    with pytest.raises(ZeroDivisionError):
        async with traces.group(AsyncMortal, start_method="spawn") as group:
            pid = group.pids[0]
            running = [asyncio.ensure_future(group.call_one(0, "hold", word)) for word in "ab"]
            for word in "ab":
                await traces.seen(f"began {word}")
            raise ZeroDivisionError
    for call in running:
        assert isinstance(await outcome_of(call), QueueClosed)
    assert sorted(traces.after("cancelled")) == ["a", "b"]
    assert traces.after("closed") == [str(pid)]
    assert_over(group)


@pytest.mark.parametrize("how", ["exception", "drain_timeout"])
async def test_a_sync_call_that_does_not_end_is_killed(
    traces: Traces, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the grace period in which the object could have been closed."""
    monkeypatch.setattr(_crew, "_GRACE", 0.05)
    failing: type[Exception] | tuple[type[Exception], ...] = ZeroDivisionError if how == "exception" else ()
    try:
        async with traces.group(Mortal, pipeline=4, drain_timeout=0.01) as group:
            pid = group.pids[0]
            running = asyncio.ensure_future(group.call_one(0, "hold", "long"))
            waiting = asyncio.ensure_future(group.call_one(0, "note", "behind"))
            await traces.seen("began long")
            if how == "exception":
                raise ZeroDivisionError
    except failing:
        pass
    for call in (running, waiting):
        assert isinstance(await outcome_of(call), QueueClosed)
    assert is_gone(pid)
    assert traces.after("ran") == traces.after("ended") == traces.after("closed") == []
    assert_over(group)


async def test_a_sync_call_that_ends_in_the_grace_period_lets_the_object_close(traces: Traces) -> None:
    """What was behind it is not run any more."""
    async with traces.group(Mortal, pipeline=4, drain_timeout=0.01) as group:
        pid = group.pids[0]
        running = asyncio.ensure_future(group.call_one(0, "hold", "long"))
        waiting = asyncio.ensure_future(group.call_one(0, "note", "behind"))
        await traces.seen("began long")
        running.add_done_callback(lambda _: traces.open("long"))  # given up, and only then let through
    for call in (running, waiting):
        assert isinstance(await outcome_of(call), QueueClosed)
    assert traces.after("ended") == ["long"]
    assert traces.after("closed") == [str(pid)]
    assert traces.after("ran") == []


async def test_cancelling_the_end_ends_it_by_force(traces: Traces) -> None:
    """No caller waits for ever, and no process is left."""
    group = traces.group(Mortal, 2)
    await group.__aenter__()
    pids = group.pids
    calls = [asyncio.ensure_future(group.call_one(rank, "hold", f"{rank}")) for rank in (0, 1)]
    for rank in (0, 1):
        await traces.seen(f"began {rank}")
    calls += [asyncio.ensure_future(group.call_one("any", "note", "never")) for _ in range(9)]
    calls.append(asyncio.ensure_future(group.call("note", "never")))
    await asyncio.sleep(0)
    closing = asyncio.ensure_future(group.aclose())
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert all(map(is_gone, pids))
    for call in calls:
        assert isinstance(await outcome_of(call), QueueClosed)
    assert traces.after("ran") == []
    assert_over(group)
    await group.aclose()


async def test_a_worker_that_dies_while_the_group_drains(traces: Traces) -> None:
    """Its calls fail with that, and the others' end as they would."""
    async with traces.group(Mortal, 2) as group:
        calls = [asyncio.ensure_future(group.call_one(rank, "hold", f"{rank}")) for rank in (0, 1)]
        for rank in (0, 1):
            await traces.seen(f"began {rank}")
        behind = asyncio.ensure_future(group.call_one(0, "note", "behind"))
        await asyncio.sleep(0)
        closing = asyncio.ensure_future(group.aclose())
        await asyncio.sleep(0)
        link: Any = group._crew._berths[0].link
        link.kill()
        first = await outcome_of(calls[0])
        assert "was killed by SIGKILL" in str(first)
        assert isinstance(await outcome_of(behind), Exception)
        assert not calls[1].done()
        traces.open("1")
        assert await calls[1] == "1"
        await closing
    assert traces.after("ran") == []


@pytest.mark.parametrize("outcome", ["made", "refused"])
async def test_a_successor_that_is_being_made_does_not_outlive_the_group(
    traces: Traces, outcome: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1. A start is under way in its thread. 2. The group is closed. 3. The start succeeds, or fails."""
    real = _process.start
    entered, leave = threading.Event(), threading.Event()
    async with traces.group(Mortal) as group:

        def start(*arguments: Any) -> Any:
            entered.set()
            leave.wait()
            if outcome == "refused":
                raise OSError(12, "no memory")
            return real(*arguments)

        monkeypatch.setattr(_process, "start", start)
        assert isinstance(await outcome_of(asyncio.ensure_future(group.call_one(0, "die", "kill"))), Exception)
        await eventually(entered.is_set)
        waiting = asyncio.ensure_future(group.call_one(0, "note", "waiting"))
        await asyncio.sleep(0)
        closing = asyncio.ensure_future(group.aclose())
        await asyncio.sleep(0)
        leave.set()
        await closing
        answer = await outcome_of(waiting)
        assert answer == "waiting" if outcome == "made" else isinstance(answer, StartFailed)
        assert group.statistics().workers[0].starts == 2
    assert_over(group)


# the object's own end


async def test_an_object_that_cannot_be_closed_stops_nobody(traces: Traces) -> None:
    async with traces.group(Unclosable, 2) as group:
        pids = group.pids
        assert await group.call("note", "well") == ["well"] * 2
    assert all(map(is_gone, pids))
    assert_over(group)


class Unclosable(Mortal):
    def close(self) -> None:
        super().close()
        raise ValueError("cannot be closed")
