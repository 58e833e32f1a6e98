"""Cancel storm: tasks that receive are cancelled at random moments while numbered messages come. How many are lost?

A message is lost that was sent and that no receive has returned, though the line was read until nothing came any more.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

from aiospin.bench.contract import Subject
from aiospin.bench.pace import fitting, pause, stamp_of, stamped
from aiospin.bench.samples import Figures
from aiospin.bench.scenario import MESSAGE, Effort, Figure, Point, Record, Scenario, loops_only, plan_for
from aiospin.bench.stage import Control, Ends, Peer, perform

GAP = 0.0001
SEED = 20
QUIET = 0.3
"""seconds without a message after the last was sent, and nothing will come any more"""
LEAST = 500
MOST = 20_000


class Storm(Scenario):
    name = "storm"
    title = "receives cancelled at random moments, 0.1 ms between messages"
    points = (Point("cancels", GAP),)
    figures = (
        Figure("lost", "lost", "messages that no receive returned"),
        Figure("twice", "twice", "messages that came more than once"),
        Figure("sent", "sent", "messages", more_is_better=True),
        Figure("cancelled", "cancels", "receives that were cancelled", more_is_better=True),
    )

    columns = 4
    compared = False

    def unfit(self, subject: Subject, point: Point) -> str | None:
        return loops_only(subject)

    def play(self, subject: Subject, point: Point, effort: Effort) -> Record:
        plan = plan_for(effort)
        count = fitting(effort.seconds, GAP * 1.5, LEAST, MOST)
        with (
            subject.line(plan) as line,
            Peer(perform, subject, [line.writer], plan, None, send_numbers) as peer,
        ):
            return dict(perform(subject, [line.readers[0]], plan, None, receive_in_a_storm, peer, count))

    def evaluate(self, record: Record, point: Point) -> Figures:
        return {**missed(record["sent"], record["received"]), "cancelled": float(record["cancelled"])}


def missed(sent: int, received: Sequence[int]) -> Figures:
    different = len(set(received))
    return {"lost": float(sent - different), "twice": float(len(received) - different), "sent": float(sent)}


async def receive_in_a_storm(ends: Ends, peer: Peer, count: int) -> Record:
    receive = ends[0].receive
    chance = random.Random(SEED)
    received: list[int] = []
    cancelled = 0
    await peer.ready_awaited()
    peer.order(count)
    all_sent = asyncio.ensure_future(peer.answer_awaited())
    while not all_sent.done():
        task = asyncio.ensure_future(receive())
        for _ in range(chance.choice((0, 1, 1, 2, 3))):
            await asyncio.sleep(0)
        if chance.random() < 0.5:
            await asyncio.wait([task], timeout=chance.random() * 4 * GAP)
        cancelled += task.cancel()
        await asyncio.wait([task])
        if not task.cancelled():
            received.append(stamp_of(task.result()))
    while True:  # now in peace
        task = asyncio.ensure_future(receive())
        done, _ = await asyncio.wait([task], timeout=QUIET)
        if not done:
            break
        received.append(stamp_of(task.result()))
    task.cancel()
    await asyncio.wait([task])
    return {"sent": count, "received": received, "cancelled": cancelled}


async def send_numbers(ends: Ends, control: Control) -> None:
    send, rest = ends[0].send, bytes(MESSAGE - 8)
    async for count in control.orders_awaited():
        for n in range(count):
            pause(GAP)
            await send(stamped(n, rest))
            await asyncio.sleep(0)  # loops that send at the end of a turn send now
        control.answer(None)
