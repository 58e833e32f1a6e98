"""The questions: one row per scenario, with the load of a round and the figure that is compared.

`references` are the subjects that every other one of the scenario is divided by, round for round: floors in C, and
peers. `targets` are what aiospin sets out to reach; they are printed beside the results and decide nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from .contract import Load


@dataclass(frozen=True)
class Scenario:
    name: str
    title: str
    load: Load
    figure: str
    """the figure that is compared; the others are printed beside it"""
    references: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()

    def quick(self) -> Scenario:
        """The same question with about a tenth of the work."""
        load = self.load
        return replace(self, load=replace(load, count=max(load.count // 10, 5), seconds=load.seconds / 5))


SCENARIOS = (
    Scenario(
        "sync_pingpong",
        "sync ping-pong, 64 bytes, one way",
        Load(count=50_000, nbytes=64),
        "p50_us",
        ("floor", "pipe"),
        ("<= 3 x floor", "<= 1/12 of pipe"),
    ),
    Scenario(
        "async_pingpong",
        "async ping-pong, 64 bytes, one way",
        Load(count=20_000, nbytes=64),
        "p50_us",
        ("floor", "stream uvloop", "pyzmq asyncio"),
        ("<= 3.5 x floor", "<= 1/14 of stream uvloop", "<= 1/60 of pyzmq asyncio"),
    ),
    Scenario(
        "cadence",
        "5 ms between messages, 64 bytes, one way",
        Load(count=400, nbytes=64, interval=0.005),
        "p50_us",
        ("floor", "stream uvloop"),
        ("<= 0.85 of stream uvloop", "reader at <= 4 % of a core"),
    ),
    Scenario(
        "idle",
        "4 parked readers and their writer, idle",
        Load(count=1, nbytes=64, seconds=10.0, processes=4),
        "wakeups_per_s",
        (),
        ("<= 2 wake-ups a second per process", "< 0.2 % of a core"),
    ),
    Scenario(
        "throughput_sync",
        "sync throughput, 64 bytes, one call per message",
        Load(count=1_000_000, nbytes=64),
        "per_s",
        ("pipe",),
        (">= 1.2 million/s",),
    ),
    Scenario(
        "throughput_async",
        "async throughput, 64 bytes, one call per message",
        Load(count=1_000_000, nbytes=64),
        "per_s",
        ("stream uvloop",),
        (">= 1.2 million/s",),
    ),
    Scenario(
        "batch_sync",
        "sync throughput, 64 bytes, 64 messages per call",
        Load(count=4_000_000, nbytes=64, batch=64),
        "per_s",
        (),
        (">= 4 million/s",),
    ),
    Scenario(
        "batch_async",
        "async throughput, 64 bytes, 64 messages per call",
        Load(count=4_000_000, nbytes=64, batch=64),
        "per_s",
        (),
        (">= 4 million/s",),
    ),
    Scenario(
        "payload",
        "10 MiB payloads through a 32 MiB ring",
        Load(count=400, nbytes=10 << 20),
        "gb_per_s",
        ("floor",),
        (">= 0.85 of memcpy (floor)",),
    ),
    Scenario(
        "lag",
        "lag of a 1 ms timer on the reader's loop: p99 under load, less p99 of the idle loop",
        Load(count=10_000, nbytes=64, seconds=3.0),
        "lag_full_over_idle_us",
        (),
        ("p99 within 300 us of the idle loop's, at 10,000 messages/s and at full speed",),
    ),
)
