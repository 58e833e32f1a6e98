"""What parked readers of aiospin cost while nothing happens: the part that all its subjects share."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Any

from aiospin import Queue

from ..companion import Companion
from ..contract import Figures, Load
from ..measure import CpuMeter, wakeups

SETTLE = 1.0


def idle(load: Load, park: Callable[..., None], *args: Any) -> Figures:
    """`park(reader, *args)` in `load.processes` processes; the busiest one's wake-ups and CPU over `load.seconds`."""
    with contextlib.ExitStack() as stack:
        queue = stack.enter_context(Queue[bytes](readers=load.processes, capacity="1 MiB"))
        peers = [stack.enter_context(Companion(park, queue.reader(rank), *args)) for rank in range(load.processes)]
        writer = queue.writer()
        stack.callback(writer.close)
        writer.put(bytes(load.nbytes))
        asyncio.run(queue.ready(timeout=30))
        time.sleep(SETTLE)
        woken = [wakeups(peer.pid) for peer in peers]
        meters = [CpuMeter(peer.pid) for peer in peers]
        start = time.perf_counter()
        time.sleep(load.seconds)
        seconds = time.perf_counter() - start
        return {
            "wakeups_per_s": max(
                (wakeups(peer.pid) - before) / seconds for peer, before in zip(peers, woken, strict=True)
            ),
            "cpu_percent": max(meter.percent() for meter in meters),
        }
