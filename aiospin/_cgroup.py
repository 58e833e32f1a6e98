"""Control groups, version 1, version 2, nested and mixed: what a container may use.

Guarantee: reads only; whatever cannot be read or understood counts as "no limit", since a wrong refusal is worse than
none. `root` is "/" but in tests, which lay out a machine of their own below another directory.
Assumption: the limits of a group hold for everything below it, so the tightest ancestor counts.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

ROOT = Path("/")
_UNLIMITED = 1 << 60  # version 1 says "no limit" with the largest multiple of a page


@dataclass(frozen=True)
class MemoryGroup:
    """A group that limits memory, in bytes."""

    directory: Path
    limit: int
    usage_file: str

    def usage(self) -> int:
        """What the group uses now. Counts page cache too, which the kernel can take back."""
        return _number(self.directory / self.usage_file) or 0


def memory_groups(root: Path = ROOT) -> list[MemoryGroup]:
    """This process's groups that have a memory limit, innermost first."""
    found: list[MemoryGroup] = []
    for directory in _groups("memory", root):
        for limit_file, usage_file in (
            ("memory.max", "memory.current"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes"),
        ):
            limit = _number(directory / limit_file)
            if limit is not None and limit < _UNLIMITED:
                found.append(MemoryGroup(directory, limit, usage_file))
    return found


def cpu_quota(root: Path = ROOT) -> int | None:
    """How many CPUs' worth of time the tightest group grants, rounded up; None without a quota."""
    quotas = [quota for directory in _groups("cpu", root) for quota in _quotas(directory)]
    return max(1, math.ceil(min(quotas))) if quotas else None


def _quotas(directory: Path) -> Iterator[float]:
    """Version 2 writes "quota period" or "max period" in one file, version 1 two files and -1 for none."""
    quota, _, period = _text(directory / "cpu.max").partition(" ")
    if quota.isdecimal() and period.isdecimal() and int(period) > 0:
        yield int(quota) / int(period)
    quota_us, period_us = _number(directory / "cpu.cfs_quota_us"), _number(directory / "cpu.cfs_period_us")
    if quota_us and period_us:
        yield quota_us / period_us


def _groups(controller: str, root: Path) -> Iterator[Path]:
    """The directories of this process's groups that may limit a controller, each hierarchy from the leaf up."""
    paths = _memberships(root)
    for kind, options, mount_root, mount_point in _mounts(root):
        key = "" if kind == "cgroup2" else controller
        if key not in paths or (key and key not in options):
            continue
        top = root / mount_point.lstrip("/")
        inside = _below(paths[key], mount_root)
        yield from (top.joinpath(*inside.parts[:depth]) for depth in range(len(inside.parts), -1, -1))


def _memberships(root: Path) -> dict[str, str]:
    """Controller -> this process's path in that hierarchy; the key of version 2 is the empty string."""
    paths: dict[str, str] = {}
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        paths.update(dict.fromkeys(controllers.split(","), path))
    return paths


def _mounts(root: Path) -> Iterator[tuple[str, set[str], str, str]]:
    """Each mounted hierarchy: its type, its options, which part of it is mounted, and where."""
    for line in _text(root / "proc/self/mountinfo").splitlines():
        before, _, after = line.partition(" - ")
        where, what = before.split(), after.split()
        if len(where) > 4 and len(what) > 2 and what[0] in ("cgroup", "cgroup2"):
            yield what[0], set(what[2].split(",")), _unescape(where[3]), _unescape(where[4])


def _below(path: str, mount_root: str) -> PurePosixPath:
    """A group's path as seen from the mount point. A group outside of what is mounted is seen from its top."""
    group, top = PurePosixPath(path), PurePosixPath(mount_root)
    if ".." in group.parts or not group.is_relative_to(top):
        return PurePosixPath()
    return group.relative_to(top)


def _unescape(field: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), field)


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _number(path: Path) -> int | None:
    text = _text(path)
    return int(text) if text.isdecimal() else None
