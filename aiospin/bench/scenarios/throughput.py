"""Throughput: how many messages, and bytes, pass in a second, one call per message, when the writer never pauses?

Small messages are taken as bytes of one's own, large ones where they lie, if the transport can do that.
"""

from __future__ import annotations

from collections.abc import Sequence

from aiospin.bench import floors
from aiospin.bench.contract import Plan, Subject
from aiospin.bench.pace import clock, fitting
from aiospin.bench.samples import Figures
from aiospin.bench.scenario import Effort, Figure, Point, Record, Scenario, plan_for
from aiospin.bench.stage import Control, Ends, Peer, perform

LEAST = 6
MOST = 3_000_000
TRIAL_NS = 5_000_000
"""a trial doubles its messages until it takes so long"""


class Throughput(Scenario):
    name = "throughput"
    title = "as fast as it goes, one call per message"
    points = (
        Point("8 B", 8, quick=False),
        Point("64 B", 64),
        Point("1 KiB", 1 << 10, quick=False),
        Point("16 KiB", 1 << 14, quick=False),
        Point("256 KiB", 1 << 18, quick=False),
        Point("10 MiB", 10 << 20),
        Point("64 MiB", 64 << 20, quick=False),
    )
    figures = (
        Figure("per_s", "per s", "messages a second", more_is_better=True),
        Figure("gb_per_s", "GB/s", "1e9 bytes a second", more_is_better=True),
    )

    def unfit(self, subject: Subject, point: Point) -> str | None:
        if subject.largest is not None and point.value > subject.largest:
            return f"carries at most {subject.largest} bytes"
        return None

    def play(self, subject: Subject, point: Point, effort: Effort) -> Record:
        plan = plan_for(effort, int(point.value))
        with (
            subject.line(plan) as line,
            Peer(perform, subject, [line.writer], plan, flood, flood_awaited, plan) as peer,
        ):
            return dict(perform(subject, [line.readers[0]], plan, swallow, swallow_awaited, peer, effort.seconds))

    def floors(self, point: Point) -> Sequence[str]:
        return (floors.MEMCPY,)

    def play_floor(self, floor: str, point: Point, effort: Effort) -> Record:
        copy, nbytes = floors.native().floor_copy, int(point.value)
        ring = Plan(nbytes).room
        each = copy(10, nbytes, ring) / 10 / 1e9
        count = fitting(effort.seconds, each, LEAST, MOST)
        return {"messages": count, "wall_ns": copy(count, nbytes, ring)}

    def evaluate(self, record: Record, point: Point) -> Figures:
        per_s = record["messages"] / record["wall_ns"] * 1e9
        return {"per_s": per_s, "gb_per_s": per_s * point.value / 1e9}


def swallow(ends: Ends, peer: Peer, seconds: float) -> Record:
    peer.ready()
    count, took = LEAST, 0
    while took < TRIAL_NS and count < MOST:
        count *= 2
        took = _swallow(ends, peer, count)
    count = fitting(seconds, took / count / 1e9, LEAST, MOST)
    return {"messages": count, "wall_ns": _swallow(ends, peer, count)}


def _swallow(ends: Ends, peer: Peer, count: int) -> int:
    """The time from the first message to the last of `count` after it."""
    take = ends[0].take
    peer.order(count + 1)
    take()
    start = clock()
    for _ in range(count):
        take()
    took = clock() - start
    peer.answer()
    return took


def flood(ends: Ends, plan: Plan, control: Control) -> None:
    send, payload = ends[0].send, bytes(plan.nbytes)
    for count in control.orders():
        for _ in range(count):
            send(payload)
        control.answer(None)


async def swallow_awaited(ends: Ends, peer: Peer, seconds: float) -> Record:
    await peer.ready_awaited()
    count, took = LEAST, 0
    while took < TRIAL_NS and count < MOST:
        count *= 2
        took = await _swallow_awaited(ends, peer, count)
    count = fitting(seconds, took / count / 1e9, LEAST, MOST)
    return {"messages": count, "wall_ns": await _swallow_awaited(ends, peer, count)}


async def _swallow_awaited(ends: Ends, peer: Peer, count: int) -> int:
    take = ends[0].take
    peer.order(count + 1)
    await take()
    start = clock()
    for _ in range(count):
        await take()
    took = clock() - start
    await peer.answer_awaited()
    return took


async def flood_awaited(ends: Ends, plan: Plan, control: Control) -> None:
    send, payload = ends[0].send, bytes(plan.nbytes)
    async for count in control.orders_awaited():
        for _ in range(count):
            await send(payload)
        control.answer(None)
