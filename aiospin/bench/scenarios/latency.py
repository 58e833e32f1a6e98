"""Ping-pong: how long is a message of 64 bytes on its way to a reader that waits for it, with a pause before each?

Without a pause one way is half a round trip, from a clock that is read once per round trip. With one, the pinger writes
its clock into the message and the answering process reads its own when it has it; what the answer takes on its way back
is in `round`. CPU time is the answering process's, all threads of it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from aiospin.bench import floors
from aiospin.bench.contract import Subject
from aiospin.bench.pace import clock, fitting, pause, stamp_of, stamped
from aiospin.bench.samples import Figures, curve, halves, percentile, ranked, steady
from aiospin.bench.scenario import MESSAGE, Effort, Figure, Point, Record, Scenario, plan_for
from aiospin.bench.stage import Control, Ends, Peer, perform

TRIAL = 100
MOST = 50_000
LEAST = 12
CHUNK = 1000
"""passes of the cache line per sample"""


class Latency(Scenario):
    name = "latency"
    title = f"ping-pong, {MESSAGE} bytes, one way, with a pause before each message"
    points = (
        Point("no gap", 0.0),
        Point("50 us", 50e-6),
        Point("1 ms", 1e-3, quick=False),
        Point("5 ms", 5e-3),
        Point("100 ms", 0.1, quick=False),
    )
    figures = (
        Figure("p50_us", "p50", "us, one way"),
        Figure("p99_us", "p99", "us, one way"),
        Figure("p999_us", "p99.9", "us, one way"),
        Figure("round_us", "round", "us, there and back, median"),
    )

    def play(self, subject: Subject, point: Point, effort: Effort) -> Record:
        plan = plan_for(effort, answers=True)
        with (
            subject.line(plan) as line,
            Peer(perform, subject, [line.readers[0]], plan, answer, answer_awaited) as peer,
        ):
            return dict(perform(subject, [line.writer], plan, ping, ping_awaited, peer, point.value, effort.seconds))

    def floors(self, point: Point) -> Sequence[str]:
        return (floors.PIPE,) if point.value else (floors.CACHE_LINE, floors.PIPE)

    def play_floor(self, floor: str, point: Point, effort: Effort) -> Record:
        native = floors.native()
        if floor == floors.CACHE_LINE:
            each = native.floor_bounce(10, CHUNK)[0]
            took = native.floor_bounce(fitting(effort.seconds, 2 * each * CHUNK / 1e9, 10, MOST), CHUNK)
            return {"one_way_ns": took, "round_ns": [2 * value for value in took]}
        count = fitting(effort.seconds, point.value + 30e-6, LEAST, MOST)
        wakes = native.floor_wake(count, int(point.value * 1e9))
        return {
            "one_way_ns": wakes.one_way,
            "round_ns": wakes.round_trip,
            "cpu_ns": wakes.reader_cpu,
            "wall_ns": wakes.wall,
            "messages": count,
        }

    def evaluate(self, record: Record, point: Point) -> Figures:
        return {
            **ranked(record["one_way_ns"]),
            "round_us": percentile(steady(record["round_ns"]), 0.5) / 1e3,
            **cpu_figures(record),
        }

    def curve(self, record: Record) -> list[float]:
        return curve(record["one_way_ns"])


def cpu_figures(record: Record) -> Figures:
    """What the answering process used. Empty where nobody counted."""
    if "cpu_ns" not in record:
        return {}
    return {
        "cpu_s_per_million": record["cpu_ns"] / record["messages"] / 1e3,
        "cpu_percent": 100.0 * record["cpu_ns"] / record["wall_ns"],
    }


def _record(took: list[int], stamps: list[int], reply: dict[str, Any]) -> Record:
    """With a pause the reader knows when a message came, and without one half the round trip tells."""
    one_way: list[float] = reply["one_way_ns"] or halves(stamps)
    round_trips: list[float] = [*took] or [2 * value for value in one_way]
    return {**reply, "one_way_ns": one_way, "round_ns": round_trips}


def ping(ends: Ends, peer: Peer, gap: float, seconds: float) -> Record:
    peer.ready()
    peer.order((TRIAL, False))
    trial = halves(_rush(ends, TRIAL))
    peer.answer()
    each = gap + 2 * percentile(sorted(trial), 0.5) / 1e9
    count = fitting(seconds, each, LEAST, MOST)
    peer.order((count, bool(gap)))
    took: list[int] = []
    stamps: list[int] = []
    if gap:
        took = _paced(ends, count, gap)
    else:
        stamps = _rush(ends, count)
    return _record(took, stamps, peer.answer())


def _rush(ends: Ends, count: int) -> list[int]:
    send, receive = ends[0].send, ends[0].receive
    payload = bytes(MESSAGE)
    stamps = [0] * (count + 1)
    stamps[0] = clock()
    for n in range(1, count + 1):
        send(payload)
        receive()
        stamps[n] = clock()
    return stamps


def _paced(ends: Ends, count: int, gap: float) -> list[int]:
    send, receive = ends[0].send, ends[0].receive
    rest = bytes(MESSAGE - 8)
    took = [0] * count
    for n in range(count):
        pause(gap)
        sent = clock()
        send(stamped(sent, rest))
        receive()
        took[n] = clock() - sent
    return took


def answer(ends: Ends, control: Control) -> None:
    send, receive = ends[0].send, ends[0].receive
    for count, is_stamped in control.orders():
        meter = _Meter(count)
        one_way: list[int] = [0] * count if is_stamped else []
        if is_stamped:
            for n in range(count):
                payload = receive()
                one_way[n] = clock() - stamp_of(payload)
                send(payload)
        else:
            for _ in range(count):
                send(receive())
        control.answer(meter.reply(one_way))


async def ping_awaited(ends: Ends, peer: Peer, gap: float, seconds: float) -> Record:
    await peer.ready_awaited()
    peer.order((TRIAL, False))
    trial = halves(await _rush_awaited(ends, TRIAL))
    await peer.answer_awaited()
    each = gap + 2 * percentile(sorted(trial), 0.5) / 1e9
    count = fitting(seconds, each, LEAST, MOST)
    peer.order((count, bool(gap)))
    took: list[int] = []
    stamps: list[int] = []
    if gap:
        took = await _paced_awaited(ends, count, gap)
    else:
        stamps = await _rush_awaited(ends, count)
    return _record(took, stamps, await peer.answer_awaited())


async def _rush_awaited(ends: Ends, count: int) -> list[int]:
    send, receive = ends[0].send, ends[0].receive
    payload = bytes(MESSAGE)
    stamps = [0] * (count + 1)
    stamps[0] = clock()
    for n in range(1, count + 1):
        await send(payload)
        await receive()
        stamps[n] = clock()
    return stamps


async def _paced_awaited(ends: Ends, count: int, gap: float) -> list[int]:
    """The pinger's loop has nothing to do in a pause, so blocking it costs nobody anything and keeps the gap exact."""
    send, receive = ends[0].send, ends[0].receive
    rest = bytes(MESSAGE - 8)
    took = [0] * count
    for n in range(count):
        pause(gap)
        sent = clock()
        await send(stamped(sent, rest))
        await receive()
        took[n] = clock() - sent
    return took


async def answer_awaited(ends: Ends, control: Control) -> None:
    send, receive = ends[0].send, ends[0].receive
    async for count, is_stamped in control.orders_awaited():
        meter = _Meter(count)
        one_way: list[int] = [0] * count if is_stamped else []
        if is_stamped:
            for n in range(count):
                payload = await receive()
                one_way[n] = clock() - stamp_of(payload)
                await send(payload)
        else:
            for _ in range(count):
                await send(await receive())
        control.answer(meter.reply(one_way))


class _Meter:
    """What the answering process used since this was made."""

    def __init__(self, messages: int) -> None:
        self._messages = messages
        self._cpu = time.process_time_ns()
        self._wall = clock()

    def reply(self, one_way: list[int]) -> dict[str, Any]:
        cpu, wall = time.process_time_ns() - self._cpu, clock() - self._wall
        return {"one_way_ns": one_way, "cpu_ns": cpu, "wall_ns": wall, "messages": self._messages}
