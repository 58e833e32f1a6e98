"""Batches: the same throughput with many messages per call, for transports that have such calls."""

from __future__ import annotations

from aiospin.bench.contract import Plan, Subject
from aiospin.bench.pace import clock, fitting
from aiospin.bench.samples import Figures
from aiospin.bench.scenario import MESSAGE, Effort, Figure, Point, Record, Scenario, plan_for
from aiospin.bench.stage import Control, Ends, Peer, perform

BATCH = 64
TRIAL = 100 * BATCH
MOST = 10_000_000


class Batch(Scenario):
    name = "batch"
    title = f"as fast as it goes, {BATCH} messages of {MESSAGE} bytes per call"
    points = (Point(f"{BATCH} x {MESSAGE} B", BATCH),)
    figures = (Figure("per_s", "per s", "messages a second", more_is_better=True),)

    def unfit(self, subject: Subject, point: Point) -> str | None:
        return None if subject.batches else "has no calls for many messages"

    def play(self, subject: Subject, point: Point, effort: Effort) -> Record:
        plan = plan_for(effort)
        with (
            subject.line(plan) as line,
            Peer(perform, subject, [line.writer], plan, flood, flood_awaited, plan) as peer,
        ):
            return dict(perform(subject, [line.readers[0]], plan, swallow, swallow_awaited, peer, effort.seconds))

    def evaluate(self, record: Record, point: Point) -> Figures:
        return {"per_s": record["messages"] / record["wall_ns"] * 1e9}


def swallow(ends: Ends, peer: Peer, seconds: float) -> Record:
    peer.ready()
    messages, took = _swallow(ends, peer, TRIAL)
    count = fitting(seconds, took / messages / 1e9, TRIAL, MOST) // BATCH * BATCH
    messages, took = _swallow(ends, peer, count)
    return {"messages": messages, "wall_ns": took}


def _swallow(ends: Ends, peer: Peer, count: int) -> tuple[int, int]:
    """How many messages came after the first, but for a batch at the end, and in what time."""
    receive_many = ends[0].receive_many
    peer.order(count // BATCH + 1)
    left = count + BATCH - len(receive_many(BATCH))
    start, before = clock(), left
    while left > BATCH:
        left -= len(receive_many(BATCH))
    took, messages = clock() - start, before - left
    while left > 0:
        left -= len(receive_many(BATCH))
    peer.answer()
    return messages, took


def flood(ends: Ends, plan: Plan, control: Control) -> None:
    send_many, payloads = ends[0].send_many, [bytes(plan.nbytes)] * BATCH
    for count in control.orders():
        for _ in range(count):
            send_many(payloads)
        control.answer(None)


async def swallow_awaited(ends: Ends, peer: Peer, seconds: float) -> Record:
    await peer.ready_awaited()
    messages, took = await _swallow_awaited(ends, peer, TRIAL)
    count = fitting(seconds, took / messages / 1e9, TRIAL, MOST) // BATCH * BATCH
    messages, took = await _swallow_awaited(ends, peer, count)
    return {"messages": messages, "wall_ns": took}


async def _swallow_awaited(ends: Ends, peer: Peer, count: int) -> tuple[int, int]:
    receive_many = ends[0].receive_many
    peer.order(count // BATCH + 1)
    left = count + BATCH - len(await receive_many(BATCH))
    start, before = clock(), left
    while left > BATCH:
        left -= len(await receive_many(BATCH))
    took, messages = clock() - start, before - left
    while left > 0:
        left -= len(await receive_many(BATCH))
    await peer.answer_awaited()
    return messages, took


async def flood_awaited(ends: Ends, plan: Plan, control: Control) -> None:
    send_many, payloads = ends[0].send_many, [bytes(plan.nbytes)] * BATCH
    async for count in control.orders_awaited():
        for _ in range(count):
            await send_many(payloads)
        control.answer(None)
