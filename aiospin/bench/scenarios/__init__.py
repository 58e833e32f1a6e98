"""One file per question. `SCENARIOS` is the only list of them."""

from __future__ import annotations

from typing import Final

from aiospin.bench.scenario import Scenario
from aiospin.bench.scenarios.batch import Batch
from aiospin.bench.scenarios.broadcast import Broadcast
from aiospin.bench.scenarios.cpu import Cpu
from aiospin.bench.scenarios.crowd import Crowd
from aiospin.bench.scenarios.fan_in import FanIn
from aiospin.bench.scenarios.idle import Idle
from aiospin.bench.scenarios.lag import Lag
from aiospin.bench.scenarios.latency import Latency
from aiospin.bench.scenarios.members import Members
from aiospin.bench.scenarios.storm import Storm
from aiospin.bench.scenarios.throughput import Throughput

SCENARIOS: Final[dict[str, Scenario]] = {
    scenario.name: scenario
    for scenario in (
        Latency(),
        Cpu(),
        Broadcast(),
        Throughput(),
        Batch(),
        FanIn(),
        Members(),
        Idle(),
        Lag(),
        Storm(),
        Crowd(),
    )
}
"""by name, in the order in which they are played and shown"""
