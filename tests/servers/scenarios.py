"""What is asked of every transport, and what is compared."""

from __future__ import annotations

from dataclasses import dataclass

Figures = dict[str, float]

SMALL = 64
"""bytes: a payload that costs nothing"""
CLIENTS = (1, 8, 64)
PAYLOADS = (64, 4 << 10, 1 << 20, 10 << 20)
UNITS = {64: "64 B", 4 << 10: "4 KiB", 1 << 20: "1 MiB", 10 << 20: "10 MiB"}
REFERENCES = ("executor", "mp_queue")
"""the transports that ratios are taken to"""


def closed_loop_name(clients: int) -> str:
    return f"clients_{clients}"


def payload_name(nbytes: int) -> str:
    return f"payload_{UNITS[nbytes].replace(' ', '_')}"


@dataclass(frozen=True)
class Scenario:
    """One table: the figure that is compared, and those that stand beside it."""

    name: str
    title: str
    figure: str
    beside: tuple[str, ...]
    target: str = ""


SCENARIOS = (
    *(
        Scenario(
            closed_loop_name(clients),
            f"{clients} closed-loop client{'s' * (clients > 1)}, {SMALL} B",
            "per_s",
            ("p50_us", "p99_us", "max_us"),
            {1: "5 times the executor's calls/s", 64: "3 times the executor's calls/s"}.get(clients, ""),
        )
        for clients in CLIENTS
    ),
    *(
        Scenario(payload_name(nbytes), f"1 client, {UNITS[nbytes]}", "per_s", ("p50_us", "p99_us", "gb_per_s"))
        for nbytes in PAYLOADS
    ),
    Scenario(
        "idle",
        "nobody calls",
        "server_cpu_percent",
        ("workers_cpu_percent", "server_switches_per_s", "workers_switches_per_s"),
    ),
)
