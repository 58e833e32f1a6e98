"""Fan-in: eight lines end in one event loop, a task at each. How fast do they flow, and how late is a message?

All eight are written to in turn by one process: first as fast as it goes, then one message after each pause.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from aiospin.bench.contract import Subject
from aiospin.bench.pace import clock, fitting, pause, stamp_of, stamped
from aiospin.bench.samples import Figures, curve, ranked
from aiospin.bench.scenario import MESSAGE, Effort, Figure, Point, Record, Scenario, loops_only, plan_for, several
from aiospin.bench.stage import Control, Ends, Peer, perform

LINES = 8
GAP = 0.0002
TRIAL = 50
MOST = 200_000


class FanIn(Scenario):
    name = "fan-in"
    title = f"{LINES} lines to one loop, {MESSAGE} bytes"
    points = (Point(f"{LINES} lines", LINES),)
    figures = (
        Figure("per_s", "per s", "messages a second, as fast as it goes", more_is_better=True),
        Figure("p50_us", "p50", "us, one way, with 0.2 ms between messages"),
        Figure("p99_us", "p99", "us, one way, with 0.2 ms between messages"),
    )

    def unfit(self, subject: Subject, point: Point) -> str | None:
        return loops_only(subject)

    def play(self, subject: Subject, point: Point, effort: Effort) -> Record:
        plan = plan_for(effort)
        with (
            several(subject, plan, point.value) as (writers, readers),
            Peer(perform, subject, writers, plan, None, pour) as peer,
        ):
            return dict(perform(subject, readers, plan, None, gather, peer, effort.seconds))

    def evaluate(self, record: Record, point: Point) -> Figures:
        return {"per_s": record["messages"] / record["wall_ns"] * 1e9, **ranked(record["one_way_ns"])}

    def curve(self, record: Record) -> list[float]:
        return curve(record["one_way_ns"])


async def gather(ends: Ends, peer: Peer, seconds: float) -> Record:
    await peer.ready_awaited()
    took = await _flow(ends, peer, TRIAL)
    each = fitting(seconds / 2, took / TRIAL / 1e9, TRIAL, MOST)
    took = await _flow(ends, peer, each)
    paced = fitting(seconds / 2, GAP * len(ends), 20, MOST)
    peer.order((paced, GAP))
    arrived = await asyncio.gather(*(_listen(end.receive, paced) for end in ends))
    await peer.answer_awaited()
    return {"messages": each * len(ends), "wall_ns": took, "one_way_ns": in_turn(arrived)}


def in_turn(arrived: Sequence[Sequence[int]]) -> list[int]:
    """One after the other as they were sent, so that the warm-up stands first."""
    return [took for turn in zip(*arrived, strict=True) for took in turn]


async def _flow(ends: Ends, peer: Peer, each: int) -> int:
    """The time until every line has carried so many messages."""
    start = clock()
    peer.order((each, 0.0))
    await asyncio.gather(*(_drink(end.take, each) for end in ends))
    took = clock() - start
    await peer.answer_awaited()
    return took


async def _drink(take: Any, count: int) -> None:
    for _ in range(count):
        await take()


async def _listen(receive: Any, count: int) -> list[int]:
    took = [0] * count
    for n in range(count):
        payload = await receive()
        took[n] = clock() - stamp_of(payload)
    return took


async def pour(ends: Ends, control: Control) -> None:
    sends = [end.send for end in ends]
    rest = bytes(MESSAGE - 8)
    async for count, gap in control.orders_awaited():
        for _ in range(count):
            for send in sends:
                if gap:
                    pause(gap)
                    await asyncio.sleep(0)  # loops that send at the end of a turn send now
                await send(stamped(clock(), rest))
        control.answer(None)
