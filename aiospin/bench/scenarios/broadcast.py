"""Broadcast: one writer, several readers that sleep. What does a publish cost it, and when has the last reader it?

A subject that only knows pairs writes to one after the other. Messages are small enough for every transport's slots.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

from aiospin.bench import floors
from aiospin.bench.contract import Subject
from aiospin.bench.pace import clock, fitting, pause, stamp_of, stamped
from aiospin.bench.samples import Figures, curve, ranked
from aiospin.bench.scenario import Effort, Figure, Point, Record, Scenario, plan_for
from aiospin.bench.stage import Control, Ends, Peer, perform

GAP = 0.001
NBYTES = 48
LEAST = 50
MOST = 5000


class Broadcast(Scenario):
    name = "broadcast"
    title = "one writer, 1 ms between messages, to sleeping readers"
    points = (
        Point("1 reader", 1, quick=False),
        Point("2 readers", 2, quick=False),
        Point("4 readers", 4, quick=False),
        Point("8 readers", 8),
    )
    figures = (
        Figure("last_p50_us", "last", "us until the last reader has it, median"),
        Figure("last_p99_us", "p99", "us until the last reader has it"),
        Figure("publish_p50_us", "publish", "us of the writer's call, median"),
        Figure("publish_p99_us", "p99", "us of the writer's call"),
    )

    def play(self, subject: Subject, point: Point, effort: Effort) -> Record:
        plan = plan_for(effort, NBYTES, readers=int(point.value))
        count = fitting(effort.seconds, GAP * 1.2, LEAST, MOST)
        with subject.line(plan) as line, contextlib.ExitStack() as stack:
            peers = [
                stack.enter_context(Peer(perform, subject, [ticket], plan, read, read_awaited))
                for ticket in line.readers
            ]
            cost = perform(subject, [line.writer], plan, publish, publish_awaited, peers, count)
            return {"publish_ns": cost, "last_ns": last([peer.answer() for peer in peers])}

    def floors(self, point: Point) -> Sequence[str]:
        return (floors.PIPE,)

    def play_floor(self, floor: str, point: Point, effort: Effort) -> Record:
        count = fitting(effort.seconds, GAP * 1.2, LEAST, MOST)
        wakes = floors.native().floor_fan(int(point.value), count, int(GAP * 1e9))
        return {"publish_ns": wakes.write_cost, "last_ns": wakes.one_way}

    def evaluate(self, record: Record, point: Point) -> Figures:
        return {**ranked(record["last_ns"], "last_"), **ranked(record["publish_ns"], "publish_")}

    def curve(self, record: Record) -> list[float]:
        return curve(record["last_ns"])


def last(arrivals: Sequence[Sequence[int]]) -> list[int]:
    """For each message, how long the slowest reader took."""
    return [max(each) for each in zip(*arrivals, strict=True)]


def publish(ends: Ends, peers: Sequence[Peer], count: int) -> list[int]:
    send = ends[0].send
    rest = bytes(NBYTES - 8)
    cost = [0] * count
    for peer in peers:
        peer.ready()
        peer.order(count)
    for n in range(count):
        pause(GAP)
        sent = clock()
        send(stamped(sent, rest))
        cost[n] = clock() - sent
    return cost


async def publish_awaited(ends: Ends, peers: Sequence[Peer], count: int) -> list[int]:
    send = ends[0].send
    rest = bytes(NBYTES - 8)
    cost = [0] * count
    for peer in peers:
        await peer.ready_awaited()
        peer.order(count)
    for n in range(count):
        await asyncio.sleep(GAP)
        sent = clock()
        await send(stamped(sent, rest))
        cost[n] = clock() - sent
    await asyncio.sleep(GAP)  # what a loop sends at the end of its turn
    return cost


def read(ends: Ends, control: Control) -> None:
    receive = ends[0].receive
    for count in control.orders():
        one_way = [0] * count
        for n in range(count):
            payload = receive()
            one_way[n] = clock() - stamp_of(payload)
        control.answer(one_way)


async def read_awaited(ends: Ends, control: Control) -> None:
    receive = ends[0].receive
    async for count in control.orders_awaited():
        one_way = [0] * count
        for n in range(count):
            payload = await receive()
            one_way[n] = clock() - stamp_of(payload)
        control.answer(one_way)
