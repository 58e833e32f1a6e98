"""Oversubscription: four pairs play ping-pong on two CPUs at most, all at once. How much gets through, and how late?

There are more waiters than CPUs then, and whoever spins keeps the one from running for whom it waits.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from typing import Any

from aiospin.bench.contract import Plan, Subject
from aiospin.bench.pace import clock
from aiospin.bench.samples import Figures, curve, halves, ranked
from aiospin.bench.scenario import MESSAGE, Effort, Figure, Point, Record, Scenario, plan_for
from aiospin.bench.stage import Control, Ends, Peer, perform

PAIRS = 4
CPUS = 2
GO = bytes(MESSAGE)
STOP = b"\1" + bytes(MESSAGE - 1)


class Crowd(Scenario):
    name = "crowd"
    title = f"{PAIRS} ping-pongs at once on {CPUS} CPUs, {MESSAGE} bytes"
    points = (Point(f"{PAIRS} pairs", PAIRS),)
    figures = (
        Figure("p50_us", "p50", "us, one way"),
        Figure("p99_us", "p99", "us, one way"),
        Figure("per_s", "per s", "messages a second, both ways, of all pairs", more_is_better=True),
        Figure("p999_us", "p99.9", "us, one way"),
    )

    def play(self, subject: Subject, point: Point, effort: Effort) -> Record:
        plan = plan_for(effort, answers=True)
        cpus = sorted(os.sched_getaffinity(0))[:CPUS]
        with contextlib.ExitStack() as stack:
            lines = [stack.enter_context(subject.line(plan)) for _ in range(int(point.value))]
            echoers = [
                stack.enter_context(Peer(pinned, cpus, subject, line.readers[0], plan, echo, echo_awaited))
                for line in lines
            ]
            pingers = [
                stack.enter_context(Peer(pinned, cpus, subject, line.writer, plan, rush, rush_awaited))
                for line in lines
            ]
            for peer in (*echoers, *pingers):
                peer.ready()
            for peer in (*echoers, *pingers):
                peer.order(effort.seconds)
            stamps = [pinger.answer() for pinger in pingers]
            return {"one_way_ns": together(stamps), "rates": [rate(each) for each in stamps]}

    def evaluate(self, record: Record, point: Point) -> Figures:
        return {**ranked(record["one_way_ns"]), "per_s": sum(record["rates"])}

    def curve(self, record: Record) -> list[float]:
        return curve(record["one_way_ns"])


def rate(stamps: Sequence[int]) -> float:
    """Messages a second, both ways, of one pair."""
    return 2e9 * (len(stamps) - 1) / (stamps[-1] - stamps[0])


def together(stamps: Sequence[Sequence[int]]) -> list[float]:
    """The one way times of all pairs, each without its own warm-up."""
    return [took for each in stamps for took in halves(each)]


def pinned(cpus: Sequence[int], subject: Subject, ticket: Any, plan: Plan, *rest: Any) -> None:
    os.sched_setaffinity(0, cpus)
    perform(subject, [ticket], plan, *rest)


def rush(ends: Ends, control: Control) -> None:
    send, receive = ends[0].send, ends[0].receive
    for seconds in control.orders():
        stamps = [clock()]
        end = stamps[0] + int(seconds * 1e9)
        while stamps[-1] < end:
            send(GO)
            receive()
            stamps.append(clock())
        send(STOP)
        control.answer(stamps)


def echo(ends: Ends, control: Control) -> None:
    """Answers until a message says that it was the last."""
    send, receive = ends[0].send, ends[0].receive
    for _ in control.orders():
        while not (payload := receive())[0]:
            send(payload)


async def rush_awaited(ends: Ends, control: Control) -> None:
    send, receive = ends[0].send, ends[0].receive
    async for seconds in control.orders_awaited():
        stamps = [clock()]
        end = stamps[0] + int(seconds * 1e9)
        while stamps[-1] < end:
            await send(GO)
            await receive()
            stamps.append(clock())
        await send(STOP)
        control.answer(stamps)


async def echo_awaited(ends: Ends, control: Control) -> None:
    send, receive = ends[0].send, ends[0].receive
    async for _ in control.orders_awaited():
        while not (payload := await receive())[0]:
            await send(payload)
