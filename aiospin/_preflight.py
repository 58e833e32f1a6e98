"""Will the segment fit? Asked before anything is allocated, because the answers of later are SIGBUS and SIGKILL.

Guarantee: what can never fit (above the memory of the machine, of a control group, or of the file system) is refused
with both numbers; what does not fit just now is logged once and tried, since usage counts cache that the kernel takes
back.
Assumption: limits hardly ever change, so those of the machine and the groups are read once; usage is read each time.
"""

from __future__ import annotations

import errno
import functools
import logging
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from aiospin import _cgroup, _layout
from aiospin._errors import SegmentTooLarge

_log = logging.getLogger("aiospin")
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", re.IGNORECASE)
_DECIMAL = {unit: 1000**power for power, unit in enumerate(("b", "kb", "mb", "gb", "tb"))}
_BINARY = {unit: 1024**power for power, unit in enumerate(("", "k", "m", "g", "t"))}
_UNITS = {**_DECIMAL, **_BINARY, **{f"{unit}ib": factor for unit, factor in _BINARY.items() if unit}}
_warned: set[str] = set()  # sources whose low headroom has been logged


@dataclass(frozen=True)
class Bound:
    """A number of bytes, and who sets it."""

    bytes: int
    source: str


_LARGEST_FILE = Bound((1 << 63) - 1, "the largest file")


def parse_size(size: object) -> int:
    """Bytes of "16 MiB", "1.5 GB", "64k" or a plain number. K, M, G, T alone are powers of 1024, as KiB is."""
    if isinstance(size, bool) or not isinstance(size, (str, int)):
        raise TypeError(f"a size must be a number of bytes or text such as '16 MiB', got {size!r}")
    if isinstance(size, int):
        value = size
    else:
        match = _SIZE.fullmatch(size)
        if match is None or match[2].lower() not in _UNITS:
            raise ValueError(f"a size looks like '16 MiB' or '65536', got {size!r}")
        value = _scaled(match[1], _UNITS[match[2].lower()])
    if value <= 0:
        raise ValueError(f"a size must be positive, got {size!r}")
    return value


def check_readers(readers: object) -> int:
    """The number itself if a segment can have so many readers; 0 is legal."""
    if isinstance(readers, bool) or not isinstance(readers, int):
        raise TypeError(f"readers must be a whole number, got {readers!r}")
    if not 0 <= readers <= _layout.MAX_READERS:
        raise ValueError(f"readers must be from 0 to {_layout.MAX_READERS}, got {readers}")
    return readers


def check_capacity(
    capacity: object, readers: object, directory: str | os.PathLike[str] | None = None, *, root: Path = _cgroup.ROOT
) -> int:
    """The ring's size in bytes, rounded up to what can be mapped, for a segment in `directory` (None: anonymous).

    SegmentTooLarge if it can never fit; one logged warning per source if it does not fit now.
    """
    rounded = _layout.align_up(parse_size(capacity), _layout.RING_ALIGN)
    size = _layout.segment_bytes(check_readers(readers), rounded)
    place = None if directory is None else os.fspath(directory)
    for limit in _limits(place, root):
        if size > limit.bytes:
            raise SegmentTooLarge(size, limit.bytes, limit.source)
    now = room(place, root=root)
    if size > now.bytes and now.source not in _warned:
        _warned.add(now.source)
        _log.warning(f"a segment of {size} bytes is more than the {now.bytes} bytes free now ({now.source})")
    return rounded


def room(directory: str | None, *, root: Path = _cgroup.ROOT) -> Bound:
    """The least number of bytes that is free at present, over everything that bounds a segment there."""
    return min(_headrooms(directory, root), key=lambda bound: bound.bytes)


def usable_cpus(*pids: int, root: Path = _cgroup.ROOT) -> int:
    """How many CPUs this process and those of `pids` can keep busy together: their affinities, and this process's
    group's quota, rounded up; at least 1."""
    allowed: set[int] = set()
    for pid in (0, *pids):
        try:
            allowed |= os.sched_getaffinity(pid)
        except ProcessLookupError:
            continue
    quota = _cgroup.cpu_quota(root)
    return len(allowed) if quota is None else min(len(allowed), quota)


def _scaled(digits: str, factor: int) -> int:
    whole, _, fraction = digits.partition(".")
    return int(whole + fraction) * factor // int(10 ** len(fraction))


@functools.lru_cache(maxsize=8)
def _memory_limits(root: Path) -> tuple[tuple[Bound, _cgroup.MemoryGroup | None], ...]:
    """Limits of the machine and the groups, each with the group to ask for its usage."""
    limits: list[tuple[Bound, _cgroup.MemoryGroup | None]] = []
    total = _meminfo("MemTotal", root)
    if total is not None:
        limits.append((Bound(total, "the machine's memory"), None))
    for group in _cgroup.memory_groups(root):
        limits.append((Bound(group.limit, f"the memory limit of the control group {group.directory}"), group))
    return tuple(limits)


def _limits(directory: str | None, root: Path) -> Iterator[Bound]:
    yield from (bound for bound, _ in _memory_limits(root))
    if directory is not None:
        place, system = _file_system_of(directory)
        if system.f_blocks:  # 0: a tmpfs without a limit
            yield Bound(system.f_blocks * system.f_frsize, f"the size of the file system of {place}")
    yield _LARGEST_FILE


def _headrooms(directory: str | None, root: Path) -> Iterator[Bound]:
    for limit, group in _memory_limits(root):
        if group is not None:
            yield Bound(max(0, limit.bytes - group.usage()), limit.source)
    available = _meminfo("MemAvailable", root)
    if available is not None:
        yield Bound(available, "the machine's memory")
    if directory is not None:
        place, system = _file_system_of(directory)
        if system.f_blocks:
            yield Bound(system.f_bavail * system.f_frsize, f"the space left in the file system of {place}")
    yield _LARGEST_FILE


def _file_system_of(directory: str) -> tuple[Path, os.statvfs_result]:
    """The nearest directory that exists, and its file system. One may go meanwhile: someone closes the last queue."""
    path = Path(directory).absolute()
    for place in (path, *path.parents):
        try:
            return place, os.statvfs(place)
        except (FileNotFoundError, NotADirectoryError):
            continue
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), directory)


def _meminfo(key: str, root: Path) -> int | None:
    try:
        text = (root / "proc/meminfo").read_text()
    except OSError:
        return None
    match = re.search(rf"^{key}:\s+(\d+) kB$", text, re.MULTILINE)
    return None if match is None else int(match[1]) * 1024
