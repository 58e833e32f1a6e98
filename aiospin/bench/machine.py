"""The head of a report: what machine and what aiospin the figures are from."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith(("model name", "CPU part")):
            return line.partition(":")[2].strip()
    return platform.machine()


def describe_machine() -> dict[str, str]:
    """Cores that this process may use, kernel, interpreter, backend and rung, and how busy the machine was before."""
    import aiospin

    return {
        "cores": str(len(os.sched_getaffinity(0))),
        "cpu": _cpu_model(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "aiospin": f"{version('aiospin')}, backend {aiospin.backend}, rung {aiospin.rung()}",
        "load_average": " ".join(f"{part:.2f}" for part in os.getloadavg()),
    }
