"""The page that waitemu.cpp shares with the tests: what was executed by all processes, and the limits of a wait.

Assumption: the library counts with atomic additions, and the numbers are read when whoever counted has ended or waits.
"""

from __future__ import annotations

import mmap
import struct
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

ENVIRONMENT = "EMULATED_CPU"  # names the page's file to waitemu.cpp

# In the order of waitemu.cpp.
COUNTS = (
    *("processes", "umonitor", "umwait", "tpause", "monitorx", "mwaitx"),
    *("store", "deadline", "limit", "interrupt", "unarmed"),
)
ENDS = ("store", "deadline", "limit", "interrupt")
INSTRUCTIONS = ("umonitor", "umwait", "tpause", "monitorx", "mwaitx")
_COUNTS_AT = 3  # after the limit, the interrupt and the ends
LIMIT, INTERRUPT = 100_000, 10_000_000  # TSC ticks; Linux's own limit, and a timer's interrupt every few milliseconds


class EmulatedCpu:
    """The page in `file`; a `fresh` one is made, with nothing counted and every wait as on Linux."""

    def __init__(self, file: Path, *, fresh: bool) -> None:
        self.file = file
        if fresh:
            file.write_bytes(bytes(8 * (_COUNTS_AT + len(COUNTS))))
            file.chmod(0o666)  # tests run as other users, too
        with file.open("r+b") as opened:
            self._page = mmap.mmap(opened.fileno(), 0)
        if fresh:
            self.set_waits()

    def counts(self) -> Counter[str]:
        """Return what was counted up to now."""
        numbers = struct.unpack_from(f"<{len(COUNTS)}Q", self._page, 8 * _COUNTS_AT)
        return Counter(dict(zip(COUNTS, numbers, strict=True)))

    def set_waits(self, limit: int = LIMIT, interrupt: int = INTERRUPT, ends: Iterable[str] = ENDS) -> None:
        """From now on end waits in these ways alone.

        `limit` and `interrupt` are in ticks: the OS's limit ends UMWAIT and TPAUSE, the timer's interrupt ends any.
        """
        struct.pack_into("<3Q", self._page, 0, limit, interrupt, sum(1 << COUNTS.index(end) for end in ends))

    def close(self) -> None:
        """Let go of the page; the file stays."""
        self._page.close()
