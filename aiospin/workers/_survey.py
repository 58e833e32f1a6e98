"""How a group stands, as one frozen snapshot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class WorkerStatistics:
    """Of one rank."""

    rank: int
    pid: int
    """Of its process; 0 while there is none."""
    state: Literal["up", "starting", "leaving", "down", "given up"]
    """"leaving" after a SIGTERM or `restart`; "down" between a death and the next start."""
    calls: int
    """Calls that the worker has: running, or given to it ahead of their turn."""
    waiting: int
    """Calls for this rank that it has not been given yet."""
    starts: int
    """How often a process was started for it."""


@dataclass(frozen=True)
class GroupStatistics:
    """Of a group."""

    workers: tuple[WorkerStatistics, ...]
    pending: int
    """Calls that have not ended, a `call` counting once for each worker."""
    waiting: int
    """Of these, calls for any worker that none has been given yet."""
