"""Will a shared-memory segment of so many bytes fit? For those who make their own; queues of this package ask anyway.

Guarantee: what the file system has no room for is refused with both numbers. What the memory of the machine or of a
control group has no room for just now is logged once per limit and not refused: usage counts cache that the kernel
takes back.
"""

from __future__ import annotations

import logging
import operator
import os
from typing import Any, Final

from aiospin import _cgroup, _preflight

SHM_PATH: Final = "/dev/shm"

_log = logging.getLogger("aiospin")
_root = _cgroup.ROOT
_warned: set[str] = set()  # the limits of which that has been said


def check_shm_free_space(
    required_bytes: int, shm_path: str = SHM_PATH, *, allocation_name: str = "shared-memory allocation"
) -> None:
    """Refuse a segment of `required_bytes` bytes that the file system of `shm_path` has no room for.

    shm_path         where segments are files; if it is no directory, file systems are not asked
    allocation_name  what the segment is for, as messages shall say it

    Raises RuntimeError with both numbers; TypeError for what is no whole number, ValueError for a negative one.
    """
    required = _require_bytes(required_bytes)
    free = _free_bytes(shm_path)
    if free is not None and required > free:
        raise RuntimeError(
            f"{allocation_name}: {required} bytes are needed, and the file system of {os.fspath(shm_path)} has {free} "
            "left; make it larger (in containers: --shm-size, or --ipc=host)"
        )
    now = _preflight.room(None, root=_root)
    if required > now.bytes and now.source not in _warned:
        _warned.add(now.source)
        _log.warning(f"{allocation_name}: {required} bytes are more than the {now.bytes} free now ({now.source})")


def _require_bytes(required_bytes: Any) -> int:
    try:
        required = operator.index(required_bytes)
    except TypeError:
        raise TypeError(f"required_bytes must be a whole number of bytes, not {required_bytes!r}") from None
    if required < 0:
        raise ValueError(f"required_bytes must be 0 or more, not {required}")
    return required


def _free_bytes(shm_path: str) -> int | None:
    """What the file system there has left for this user; None without a directory, and for a tmpfs without a limit."""
    try:
        system = os.statvfs(shm_path) if os.path.isdir(shm_path) else None
    except FileNotFoundError:  # it went in between
        return None
    return None if system is None or system.f_blocks == 0 else system.f_bavail * system.f_frsize
