"""When a sender sends, and how long that may take it: gaps that are slept or spun away, and counts that fit a time."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final

SPUN_BELOW: Final = 0.0005
"""seconds; a sleep is no good for less"""

clock = time.perf_counter_ns


def pause(gap: float) -> None:
    """Let `gap` seconds pass, without a sleep if they are few, and without anything if there are none."""
    if gap >= SPUN_BELOW:
        time.sleep(gap)
    elif gap:
        end = clock() + int(gap * 1e9)
        while clock() < end:
            pass


def fitting(seconds: float, each: float, least: int, most: int) -> int:
    """How many steps of `each` seconds fit into `seconds`, within bounds."""
    return max(least, min(most, int(seconds / max(each, 1e-9))))


def stamped(sent: int, rest: bytes) -> bytes:
    return sent.to_bytes(8, "little") + rest


def stamp_of(payload: bytes) -> int:
    return int.from_bytes(payload[:8], "little")


def switches(pid: int) -> tuple[int, int]:
    """How often the living threads of a process have left the CPU so far: to sleep, and because they had to."""
    slept = preempted = 0
    for thread in os.listdir(f"/proc/{pid}/task"):
        for line in Path(f"/proc/{pid}/task/{thread}/status").read_text().splitlines():
            if line.startswith("voluntary_ctxt_switches:"):
                slept += int(line.split()[1])
            elif line.startswith("nonvoluntary_ctxt_switches:"):
                preempted += int(line.split()[1])
    return slept, preempted
