"""Time-outs of calls: what the caller gets, and what the worker does about a call whose time is up."""

from __future__ import annotations

import asyncio
import builtins
import math
import time
from typing import Any

import pytest
from hosted import Looped, Plain
from stage import Stage

from aiospin import Queue, _loop
from aiospin.workers import WorkerGroup, _body
from aiospin.workers._envelope import Envelope, Kind
from aiospin.workers._hosted import Hosted

pytestmark = pytest.mark.asyncio(loop_scope="module")

SOON = 0.01


async def test_the_error_is_the_built_in_one_and_names_the_method(
    group: WorkerGroup[Any], stage: Stage, kind: str
) -> None:
    began = time.monotonic()
    with pytest.raises(TimeoutError, match=r"at\(\) of worker 1 did not end within 0\.01 s") as caught:
        await group.options(timeout=SOON).call_one(1, "at", f"too long, {kind}")
    assert type(caught.value) is builtins.TimeoutError
    assert time.monotonic() - began >= SOON
    stage.dismiss(f"too long, {kind}")


async def test_a_call_for_any_names_no_worker(group: WorkerGroup[Any], stage: Stage, kind: str) -> None:
    with pytest.raises(TimeoutError, match=r"^at\(\) did not end within 0\.01 s$"):
        await group.options(timeout=SOON).call_one("any", "at", f"any, {kind}")
    stage.dismiss(f"any, {kind}")


async def test_an_async_method_is_cancelled_in_the_worker(looped: WorkerGroup[Looped], stage: Stage) -> None:
    calling, (player,) = await stage.begun(
        "overdue", lambda place, timeout: looped.options(timeout=timeout).call_one(0, Looped.at, place)
    )
    assert await player.left() == ["cancelled"]
    with pytest.raises(TimeoutError):
        await calling


async def test_a_sync_method_runs_on_and_its_worker_stays_usable(plain: WorkerGroup[Plain], stage: Stage) -> None:
    calling, (player,) = await stage.begun(
        "late", lambda place, timeout: plain.options(timeout=timeout).call_one(0, Plain.at, place, "late")
    )
    with pytest.raises(TimeoutError):
        await calling
    after = asyncio.ensure_future(plain.call_one(0, Plain.echo, "in time"))
    player.go()
    assert await player.left() == []
    assert await after == "in time"


async def test_a_call_whose_time_passed_before_its_turn_does_not_run(plain: WorkerGroup[Plain], stage: Stage) -> None:
    standing = asyncio.ensure_future(plain.call_one(0, Plain.at, "in front"))
    player = await stage.entered("in front")
    with pytest.raises(TimeoutError):
        await plain.options(timeout=SOON).call_one(0, Plain.run, "too late")
    player.go()
    await standing
    assert "too late" not in await plain.call_one(0, Plain.what_ran)


async def test_a_worker_looks_at_the_deadline_itself(leaves_nothing: object) -> None:
    """Its group may be too busy to cancel in time."""
    with Queue[Any]() as queue:
        hosted = Hosted(target := Plain(), _body.find("msgpack"), queue.reader())
        for deadline, runs in ((time.monotonic_ns() + 10**12, 1), (0, 2), (time.monotonic_ns(), None)):
            body, _ = hosted.body.encode_call((), {"name": "x"})
            call = Envelope(Kind.CALL, 0, 1, deadline, "run", memoryview(body), ())
            if runs is None:
                with pytest.raises(TimeoutError, match=r"the deadline of run\(\) passed before it began"):
                    hosted.begin(call)
            else:
                hosted.begin(call)
                assert len(target.runs) == runs
        assert len(target.runs) == 2


async def test_a_call_of_all_is_late_when_one_worker_is(looped: WorkerGroup[Looped], stage: Stage) -> None:
    calling, both = await stage.begun(
        "one is late", lambda place, timeout: looped.options(timeout=timeout).call(Looped.at, place), 2
    )
    players = {player.pid: player for player in both}
    players[looped.pids[0]].go()
    with pytest.raises(TimeoutError, match="of worker 1"):
        await calling
    assert await players[looped.pids[1]].left() == ["cancelled"]


async def test_a_stream_has_one_deadline_for_all_its_parts(group: WorkerGroup[Any], stage: Stage) -> None:
    taken = []

    async def take(place: str, timeout: float) -> None:
        async for part in group.options(timeout=timeout).stream(0, "parts", place, 1000):
            taken.append(part)

    taking, (player,) = await stage.begun("slow parts", take)
    player.go()
    with pytest.raises(TimeoutError, match=r"parts\(\) of worker 0"):
        await taking
    assert taken in ([0], [])
    await group.call_one(1, "echo")
    player.go()
    player.go()
    assert await player.left() in (["cancelled"], ["closed"])


async def test_no_time_at_all_is_a_time_out(group: WorkerGroup[Any]) -> None:
    with pytest.raises(TimeoutError):
        await group.options(timeout=0).call_one(0, "echo")


@pytest.mark.parametrize("timeout", [None, math.inf, 1e300, 1e12, 86400 * 365])
async def test_as_much_time_as_one_likes(group: WorkerGroup[Any], timeout: float | None) -> None:
    caller = group.options(timeout=timeout, kill_after=timeout)
    assert await caller.call_one(0, "echo", "in time") == "in time"
    assert await caller.call("echo", "in time") == ["in time"] * 2


@pytest.mark.parametrize("what", ["timeout", "kill_after"])
async def test_a_timer_that_goes_off_early_is_set_again(
    plain: WorkerGroup[Plain], stage: Stage, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Loops take no timers of more than a day; here a day has a millisecond."""
    monkeypatch.setattr(_loop, "_FAR", 0.001)
    calling = asyncio.ensure_future(plain.options(**{what: 60}).call_one(0, Plain.at, "many days", "at last"))  # type: ignore[arg-type]
    player = await stage.entered("many days")
    if what == "kill_after":
        calling.cancel()
    await asyncio.sleep(0.02)
    player.go()
    assert await player.left() == []
    await asyncio.wait([calling])
    assert calling.cancelled() if what == "kill_after" else calling.result() == "at last"
    assert await plain.call_one(0, Plain.pid) == player.pid


async def test_a_time_out_of_the_whole_group_is_the_default_of_each_call() -> None:
    async with Stage() as stage, WorkerGroup(Looped, 1, args=(stage.address,), timeout=SOON) as group:
        with pytest.raises(TimeoutError):
            await group.call_one(0, Looped.at, "standing")
        stage.dismiss("standing")
        calling = asyncio.ensure_future(group.options(timeout=None).call_one(0, Looped.at, "no hurry", 1))
        player = await stage.entered("no hurry")
        await asyncio.sleep(2 * SOON)
        player.go()
        assert await calling == 1


async def test_a_timer_ends_with_its_call(group: WorkerGroup[Any]) -> None:
    """Else each call with a time-out would stay in memory until that is over."""
    made = []
    station = _loop.here()

    def call_later(*args: Any) -> asyncio.TimerHandle:
        made.append(call(*args))
        return made[-1]

    call = station.call_later
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(station, "call_later", call_later)
        await group.options(timeout=60).call_one(0, "echo")
        await group.options(timeout=60).call("echo")
    assert len(made) == 3
    assert all(timer.cancelled() for timer in made)
