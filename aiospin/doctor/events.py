"""Instructions and cycles of the calling thread in user mode, from the CPU's own counters (perf_event_open).

Guarantee: `Events()` raises OSError that says why they cannot be counted, and leaves no descriptor then. Numbers are
scaled when the counters were shared with others; None when they never ran.
Assumption: struct perf_event_attr as of its first version (64 bytes), which every kernel takes.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Callable
from types import TracebackType
from typing import Final

SYSCALL: Final = {"x86_64": 298, "aarch64": 241}
HARDWARE: Final = 0
CYCLES: Final = 0
INSTRUCTIONS: Final = 1
TIMES: Final = 0b11
"""read_format: enabled and running, in nanoseconds"""
USER_ONLY: Final = 1 << 5 | 1 << 6
"""exclude_kernel, exclude_hv"""
CLOEXEC: Final = 8
ATTRIBUTES: Final = struct.Struct("=IIQQQQQIIQ")
READING: Final = struct.Struct("=QQQ")

WHY: Final = {
    errno.EACCES: "not allowed: /proc/sys/kernel/perf_event_paranoid is above 2",
    errno.EPERM: "not allowed: perf_event_paranoid, or a sandbox",
    errno.ENOENT: "the CPU shows no counters (a guest without a virtual PMU)",
    errno.EOPNOTSUPP: "the CPU shows no counters (a guest without a virtual PMU)",
    errno.ENOSYS: "the kernel has no perf_event_open",
}

Open = Callable[[int], int]


def open_event(config: int) -> int:
    """A descriptor that counts for this thread from now on. OSError says why not."""
    number = SYSCALL.get(platform.machine())
    if number is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    packed = ATTRIBUTES.pack(HARDWARE, ATTRIBUTES.size, config, 0, 0, TIMES, USER_ONLY, 0, 0, 0)
    attributes = ctypes.create_string_buffer(packed, len(packed))
    libc = ctypes.CDLL(None, use_errno=True)
    fd = int(libc.syscall(number, attributes, 0, -1, -1, CLOEXEC))
    if fd < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return fd


class Events:
    """`with Events() as events:` counts until `instructions()` and `cycles()` are asked."""

    def __init__(self, open_event: Open = open_event) -> None:
        self._fds: list[int] = []
        try:
            for config in (INSTRUCTIONS, CYCLES):
                self._fds.append(open_event(config))
        except OSError as error:
            self.close()
            raise OSError(error.errno, WHY.get(error.errno or 0, error.strerror or "")) from error

    def instructions(self) -> int | None:
        return self._read(0)

    def cycles(self) -> int | None:
        return self._read(1)

    def close(self) -> None:
        while self._fds:
            os.close(self._fds.pop())

    def __enter__(self) -> Events:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _read(self, index: int) -> int | None:
        read = os.read(self._fds[index], READING.size)
        return scaled(*READING.unpack(read)) if len(read) == READING.size else None


def scaled(count: int, enabled: int, running: int) -> int | None:
    """What was counted in part of the time, for all of it."""
    return count * enabled // running if running else None
