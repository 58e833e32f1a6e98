"""Lag: how late is a 1 ms timer of an event loop whose readers are kept busy, compared with the idle loop?"""

from __future__ import annotations

import asyncio
from typing import Any

from aiospin.bench.contract import Subject
from aiospin.bench.pace import clock
from aiospin.bench.samples import Figures, percentile
from aiospin.bench.scenario import MESSAGE, Effort, Figure, Point, Record, Scenario, loops_only, plan_for, several
from aiospin.bench.stage import Control, Ends, Peer, perform

TIMER = 0.001
LEAST = 0.1
"""seconds"""


class Lag(Scenario):
    name = "lag"
    title = "lateness of a 1 ms timer on a loop whose readers are sent to at full speed"
    points = (Point("1 reader", 1), Point("64 readers", 64, quick=False))
    figures = (
        Figure("lag_p99_us", "p99", "us that the timer is late"),
        Figure("idle_p99_us", "idle", "p99 while nothing comes"),
        Figure("over_idle_us", "over", "us, the one less the other"),
        Figure("per_s", "per s", "messages a second meanwhile", more_is_better=True),
    )

    def unfit(self, subject: Subject, point: Point) -> str | None:
        return loops_only(subject)

    def play(self, subject: Subject, point: Point, effort: Effort) -> Record:
        plan = plan_for(effort)
        with (
            several(subject, plan, point.value) as (writers, readers),
            Peer(perform, subject, writers, plan, None, press) as peer,
        ):
            return dict(perform(subject, readers, plan, None, tick, peer, max(LEAST, effort.seconds / 2)))

    def evaluate(self, record: Record, point: Point) -> Figures:
        idle, busy = (percentile(sorted(record[name]), 0.99) / 1e3 for name in ("idle_ns", "busy_ns"))
        return {
            "lag_p99_us": busy,
            "idle_p99_us": idle,
            "over_idle_us": busy - idle,
            "per_s": record["messages"] / record["wall_ns"] * 1e9,
        }


async def tick(ends: Ends, peer: Peer, seconds: float) -> Record:
    await peer.ready_awaited()
    taken = [0] * len(ends)

    async def take_all(n: int, take: Any) -> None:
        while True:
            await take()
            taken[n] += 1

    tasks = [asyncio.ensure_future(take_all(n, end.take)) for n, end in enumerate(ends)]
    try:
        idle = await _lateness(seconds)
        peer.order(seconds)
        before, start = sum(taken), clock()
        busy = await _lateness(seconds * 0.8)
        messages, wall = sum(taken) - before, clock() - start
        sent = await peer.answer_awaited()
        while sum(taken) < sent:
            failed = [task for task in tasks if task.done()]
            if failed:
                await failed[0]
            await asyncio.sleep(TIMER)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return {"idle_ns": idle, "busy_ns": busy, "messages": messages, "wall_ns": wall}


async def _lateness(seconds: float) -> list[int]:
    lags: list[int] = []
    end = clock() + int(seconds * 1e9)
    while (before := clock()) < end:
        await asyncio.sleep(TIMER)
        lags.append(clock() - before - int(TIMER * 1e9))
    return lags


async def press(ends: Ends, control: Control) -> None:
    sends, payload = [end.send for end in ends], bytes(MESSAGE)
    turns = max(1, 64 // len(sends))
    async for seconds in control.orders_awaited():
        sent, end = 0, clock() + int(seconds * 1e9)
        while clock() < end:
            for _ in range(turns):
                for send in sends:
                    await send(payload)
            sent += turns * len(sends)
        control.answer(sent)
