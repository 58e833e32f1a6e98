"""CPU time of processes, to the nanosecond and without their help."""

from __future__ import annotations

import time


def cpu_ns(pid: int) -> int:
    """CPU nanoseconds that all threads of `pid`, ended ones included, have used. OSError when there is no such process.

    The kernel's clock of another process (clock_getcpuclockid); /proc/<pid>/stat counts in steps of 10 ms, which is
    more than an idle process uses in several seconds.
    """
    return time.clock_gettime_ns((~pid << 3) | 2)
