"""The machine's own limits: floor.c, compiled when first asked for, into a folder that goes when the process does."""

from __future__ import annotations

import functools
import json
import subprocess
import tempfile
from pathlib import Path

from ..contract import Figures, Load, Subject

RING_BYTES = 32 << 20


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    """Kept by the cache until the interpreter ends; its finalizer removes the folder then."""
    folder = tempfile.TemporaryDirectory(prefix="aiospin-bench-")
    source = Path(__file__).with_suffix(".c")
    subprocess.run(["gcc", "-O2", "-pthread", "-o", f"{folder.name}/floor", str(source)], check=True)
    return folder


def _measure(*args: object) -> Figures:
    done = subprocess.run([f"{_folder().name}/floor", *map(str, args)], check=True, stdout=subprocess.PIPE, timeout=60)
    figures: Figures = json.loads(done.stdout)
    return figures


def pingpong(load: Load) -> Figures:
    return _measure("pingpong", load.count * 20)


def cadence(load: Load) -> Figures:
    return _measure("wake", load.count, int(load.interval * 1e9))


def payload(load: Load) -> Figures:
    return _measure("memcpy", load.count, load.nbytes, RING_BYTES)


SUBJECT = Subject(
    "floor",
    {"sync_pingpong": pingpong, "async_pingpong": pingpong, "cadence": cadence, "payload": payload},
)
