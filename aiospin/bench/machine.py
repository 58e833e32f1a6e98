"""What machine, and what versions, figures are from."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from collections.abc import Sequence
from pathlib import Path

import aiospin
from aiospin._backend import rung
from aiospin.bench.contract import Subject


def cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
        if line.startswith(("model name", "CPU part")):
            return line.partition(":")[2].strip()
    return platform.machine()


def describe_machine() -> dict[str, str | int | float]:
    """CPU, cores that this process may use, kernel, Python, backend, rung, and how busy the machine is now."""
    return {
        "cpu": cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "aiospin": aiospin.__version__,
        "backend": aiospin.backend,
        "rung": rung(),
        "policy": os.environ.get("AIOSPIN_POLICY", "balanced"),
        "load": os.getloadavg()[0],
    }


def versions(subjects: Sequence[Subject]) -> dict[str, str]:
    """Of the packages that are measured, and of uvloop."""
    packages = ["uvloop", *(each.package for each in subjects if each.package is not None)]
    return {package: importlib.metadata.version(package) for package in dict.fromkeys(packages)}
