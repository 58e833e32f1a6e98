"""What a benchmark subject is.

A subject is one transport, spoken through exactly the calls that its users write: no layer of ours stands between the
timing loop and the transport, so every subject has its own loops. It offers *cases*, one per scenario that it can
play. A case runs in a process of its own, may start peers of its own through `companion`, is bounded by `Load`, and
returns its figures by name. It raises when it cannot run; the runner then reports why, and goes on.

Figures by name, with their units: `p50_us`, `p99_us` (one way latency), `per_s` (messages per second), `gb_per_s`
(1e9 bytes per second), `cpu_percent` (of one core), `wakeups_per_s` (per process, the busiest one), `lag_*_us`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

Figures = dict[str, float]


@dataclass(frozen=True)
class Load:
    """How much one round of a case does. Every case stops by itself after `count` messages or `seconds`."""

    count: int
    """messages, or round trips"""
    nbytes: int
    """payload bytes of one message"""
    seconds: float = 0.0
    """length of the cases that go by time"""
    interval: float = 0.0
    """seconds between two messages of the paced cases"""
    batch: int = 1
    """messages per call of the batched cases"""
    processes: int = 1
    """peers of the idle case"""


def fewer(load: Load) -> Load:
    """A tenth of the messages, for subjects that are slow enough to be measured by them."""
    return replace(load, count=max(load.count // 10, 5))


Case = Callable[[Load], Figures]


@dataclass(frozen=True)
class Subject:
    name: str
    cases: Mapping[str, Case]
    """scenario name -> case"""
