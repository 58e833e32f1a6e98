"""Idle: a reader waits and nothing comes. What does that cost, and how often does it wake?

Seen from outside: CPU time by the kernel's clock of the process, and how often its threads left the CPU.
"""

from __future__ import annotations

import time

from aiospin.bench.contract import Subject
from aiospin.bench.cpu import cpu_ns
from aiospin.bench.pace import clock, switches
from aiospin.bench.samples import Figures
from aiospin.bench.scenario import MESSAGE, Effort, Figure, Point, Record, Scenario, plan_for
from aiospin.bench.stage import Control, Ends, Peer, perform

SETTLE = 0.1
LEAST = 0.2
"""seconds"""
LONGER = 5
"""than other figures: some wake up once a second"""


class Idle(Scenario):
    name = "idle"
    title = "a reader that waits, and nothing comes"
    points = (Point("1 reader", 1),)
    figures = (
        Figure("cpu_percent", "% core", "per cent of one core"),
        Figure("wakeups_per_s", "wakes/s", "how often a thread went to sleep and woke, per second"),
        Figure("switches_per_s", "cs/s", "context switches per second, those that it had to make included"),
    )

    def play(self, subject: Subject, point: Point, effort: Effort) -> Record:
        plan = plan_for(effort)
        with (
            subject.line(plan) as line,
            Peer(perform, subject, [line.readers[0]], plan, wait, wait_awaited) as peer,
        ):
            seconds = max(LEAST, LONGER * effort.seconds)
            return dict(perform(subject, [line.writer], plan, leave_alone, leave_alone_awaited, peer, seconds))

    def evaluate(self, record: Record, point: Point) -> Figures:
        seconds = record["wall_ns"] / 1e9
        return {
            "cpu_percent": 100.0 * record["cpu_ns"] / record["wall_ns"],
            "wakeups_per_s": record["slept"] / seconds,
            "switches_per_s": (record["slept"] + record["preempted"]) / seconds,
        }


def watched(pid: int, seconds: float) -> Record:
    time.sleep(SETTLE)
    cpu, wall, (slept, preempted) = cpu_ns(pid), clock(), switches(pid)
    time.sleep(seconds)
    now = switches(pid)
    return {
        "cpu_ns": cpu_ns(pid) - cpu,
        "wall_ns": clock() - wall,
        "slept": now[0] - slept,
        "preempted": now[1] - preempted,
    }


def leave_alone(ends: Ends, peer: Peer, seconds: float) -> Record:
    """A first message shows that the line works, and a last one that the reader was still there."""
    send = ends[0].send
    peer.ready()
    peer.order(1)
    send(bytes(MESSAGE))
    peer.answer()
    peer.order(1)
    record = watched(peer.pid, seconds)
    send(bytes(MESSAGE))
    peer.answer()
    return record


async def leave_alone_awaited(ends: Ends, peer: Peer, seconds: float) -> Record:
    """The writer's loop has nothing to do meanwhile, so blocking it costs nobody anything."""
    send = ends[0].send
    await peer.ready_awaited()
    peer.order(1)
    await send(bytes(MESSAGE))
    await peer.answer_awaited()
    peer.order(1)
    record = watched(peer.pid, seconds)
    await send(bytes(MESSAGE))
    await peer.answer_awaited()
    return record


def wait(ends: Ends, control: Control) -> None:
    for count in control.orders():
        for _ in range(count):
            ends[0].receive()
        control.answer(None)


async def wait_awaited(ends: Ends, control: Control) -> None:
    async for count in control.orders_awaited():
        for _ in range(count):
            await ends[0].receive()
        control.answer(None)
