"""Whether segments fit: the machine's memory, its control groups, and the file system of named ones.

Guarantee: counts as `aiospin._preflight` does before it makes a queue.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from aiospin import _preflight
from aiospin.doctor.fact import Fact, amount, good, plain, unknown, warning
from aiospin.doctor.machine import Machine

LITTLE: Final = 64 << 20
"""bytes; sixteen queues of the default capacity"""
SHM: Final = "dev/shm"

Statvfs = Callable[[str | Path], os.statvfs_result]


def _statvfs(path: str | Path) -> os.statvfs_result:
    return os.statvfs(path)


def examine(machine: Machine, statvfs: Statvfs = _statvfs) -> Iterator[Fact]:
    yield from _headroom(machine)
    yield from _shm(machine, statvfs)


def _headroom(machine: Machine) -> Iterator[Fact]:
    try:
        total, free = _preflight._meminfo("MemTotal", machine.root), _preflight.room(None, root=machine.root)
        groups = [limit for limit, group in _preflight._memory_limits(machine.root) if group is not None]
    except (OSError, ValueError, OverflowError) as error:  # garbled files: numbers without end
        yield unknown("free", f"not told: {error}")
        return
    if total is not None:
        yield plain("machine", amount(total), min(total, _preflight._LARGEST_FILE.bytes))
    tightest = min(groups, key=lambda limit: limit.bytes, default=None)
    if tightest is None:
        yield plain("group_limit", "none", None)
    else:
        yield plain("group_limit", amount(tightest.bytes), tightest.bytes)
    if free.source == _preflight._LARGEST_FILE.source:
        yield unknown("free", "/proc/meminfo does not say")
    elif free.bytes >= LITTLE:
        yield good("free", amount(free.bytes), free.bytes)
    else:
        yield warning(
            "free",
            amount(free.bytes),
            free.bytes,
            f"Only {amount(free.bytes)} are free for segments, says {free.source}. A queue takes its capacity at once.",
            "Free memory, raise the limit, or make queues with a smaller capacity=.",
        )


def _refused(system: os.statvfs_result) -> str | None:
    """Why no file can be made there, for whatever room there is."""
    if system.f_flag & os.ST_RDONLY:
        return "it is mounted read-only"
    if system.f_files and not system.f_favail:
        return "it has no inode left"
    return None


def _shm(machine: Machine, statvfs: Statvfs) -> Iterator[Fact]:
    try:
        system = statvfs(machine.root / SHM)
    except OSError as error:
        yield warning(
            "shm",
            f"/{SHM}: {error.strerror}",
            None,
            f"Named segments go to /{SHM}, which cannot be used here ({error.strerror}). Others do not.",
            f"Mount a tmpfs at /{SHM}, or set AIOSPIN_DIR to a directory of another.",
        )
        return
    mount = machine.mount(f"/{SHM}")
    kind = mount[0] if mount is not None else None
    size, free = system.f_blocks * system.f_frsize, system.f_bavail * system.f_frsize
    text = f"{amount(free)} of {amount(size)} free in /{SHM}" if size else f"/{SHM} has no limit"
    if refused := _refused(system):
        yield warning(
            "shm",
            f"{text}, and {refused}",
            free,
            f"No named segment can be made in /{SHM}: {refused}. Anonymous ones can.",
            f"Mount a writable tmpfs at /{SHM}, or set AIOSPIN_DIR to a directory of another.",
        )
    elif kind not in (None, "tmpfs", "ramfs"):
        yield warning(
            "shm",
            f"{text}, on {kind}",
            free,
            f"/{SHM} is on {kind}, not in memory: what is written to named segments goes to a disk.",
            f"Mount a tmpfs at /{SHM}, or set AIOSPIN_DIR to a directory of another.",
        )
    elif size and free < LITTLE:
        yield warning(
            "shm",
            text,
            free,
            f"Only {amount(free)} are free in /{SHM}, where named segments go. Anonymous ones do not count there.",
            "See `aiospin ls` for what was left behind, make it larger (docker --shm-size), or use anonymous segments.",
        )
    else:
        yield good("shm", text, free if size else None)
