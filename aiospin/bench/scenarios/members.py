"""Members: a process waits for whichever of many lines is ready, and one of them is. What does a wake-up cost?

All lines are one writer's. It sends on the last of them only, with a pause before each message, so the reader sleeps.
"""

from __future__ import annotations

import resource
import time

from aiospin.bench.contract import Plan, Subject
from aiospin.bench.pace import clock, fitting, pause, stamp_of, stamped
from aiospin.bench.samples import Figures, curve, ranked
from aiospin.bench.scenario import MESSAGE, Effort, Figure, Point, Record, Scenario, several
from aiospin.bench.stage import Control, Ends, Peer, perform

GAP = 0.001
MOST = 100_000
ROOM = 1 << 16
"""bytes that a line has room for: there are a thousand"""


class Members(Scenario):
    name = "members"
    title = "a wait for many lines of which one is used, 1 ms between messages"
    points = (Point("1 line", 1), Point("64 lines", 64), Point("1,024 lines", 1024, quick=False))
    figures = (
        Figure("p50_us", "p50", "us, one way"),
        Figure("p99_us", "p99", "us, one way"),
        Figure("cpu_us", "cpu", "us of CPU per message, of the process that waits"),
    )

    def unfit(self, subject: Subject, point: Point) -> str | None:
        return None if subject.waits_for_many else "has no wait for many"

    def play(self, subject: Subject, point: Point, effort: Effort) -> Record:
        plan = Plan(MESSAGE, folder=effort.folder, least_room=ROOM)
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        count = fitting(effort.seconds, GAP, 20, MOST)
        with (
            several(subject, plan, point.value) as (writers, readers),
            Peer(perform, subject, readers, plan, look, look_awaited, subject) as peer,
        ):
            return dict(perform(subject, writers[-1:], plan, send, send_awaited, peer, count))

    def evaluate(self, record: Record, point: Point) -> Figures:
        took = record["one_way_ns"]
        return {**ranked(took), "cpu_us": record["cpu_ns"] / len(took) / 1e3}

    def curve(self, record: Record) -> list[float]:
        return curve(record["one_way_ns"])


def look(ends: Ends, subject: Subject, control: Control) -> None:
    receive = ends[-1].receive
    with subject.wait_for_any(ends) as wait:
        for count in control.orders():
            took, cpu = [0] * count, time.process_time_ns()
            for n in range(count):
                wait()
                took[n] = clock() - stamp_of(receive())
            control.answer({"one_way_ns": took, "cpu_ns": time.process_time_ns() - cpu})


async def look_awaited(ends: Ends, subject: Subject, control: Control) -> None:
    receive = ends[-1].receive
    with subject.wait_for_any(ends) as wait:
        async for count in control.orders_awaited():
            took, cpu = [0] * count, time.process_time_ns()
            for n in range(count):
                await wait()
                took[n] = clock() - stamp_of(await receive())
            control.answer({"one_way_ns": took, "cpu_ns": time.process_time_ns() - cpu})


def send(ends: Ends, peer: Peer, count: int) -> Record:
    say, rest = ends[0].send, bytes(MESSAGE - 8)
    peer.ready()
    peer.order(count)
    for _ in range(count):
        pause(GAP)
        say(stamped(clock(), rest))
    return dict(peer.answer())


async def send_awaited(ends: Ends, peer: Peer, count: int) -> Record:
    """The writer's loop has nothing to do in a pause, so blocking it costs nobody anything."""
    say, rest = ends[0].send, bytes(MESSAGE - 8)
    await peer.ready_awaited()
    peer.order(count)
    for _ in range(count):
        pause(GAP)
        await say(stamped(clock(), rest))
    return dict(await peer.answer_awaited())
