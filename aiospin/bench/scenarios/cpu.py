"""What waiting and waking cost: the answering process's CPU time, from the ping-pong of latency.py."""

from __future__ import annotations

from collections.abc import Sequence

from aiospin.bench import floors
from aiospin.bench.contract import Subject
from aiospin.bench.samples import Figures
from aiospin.bench.scenario import Effort, Figure, Point, Record, Scenario
from aiospin.bench.scenarios.latency import Latency, cpu_figures


class Cpu(Scenario):
    name = "cpu"
    title = "CPU of the answering process in the same ping-pong"
    points = Latency.points
    figures = (
        Figure("cpu_s_per_million", "s/M", "CPU seconds per million messages"),
        Figure("cpu_percent", "% core", "per cent of one core"),
    )
    played_by = "latency"

    def play(self, subject: Subject, point: Point, effort: Effort) -> Record:
        return Latency().play(subject, point, effort)

    def floors(self, point: Point) -> Sequence[str]:
        return (floors.PIPE,)

    def play_floor(self, floor: str, point: Point, effort: Effort) -> Record:
        return Latency().play_floor(floor, point, effort)

    def evaluate(self, record: Record, point: Point) -> Figures:
        return cpu_figures(record)
