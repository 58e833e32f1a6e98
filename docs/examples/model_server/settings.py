"""What can be set, checked once.

Guarantee: a Settings that exists can be served with; a wrong value raises ValueError that names it.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass

from model_server.model import check_name

MEBIBYTE = 1 << 20


def default_workers(servers: int = 1) -> int:
    """One for each CPU that this process may use, divided among `servers`."""
    return max(1, len(os.sched_getaffinity(0)) // servers)


@dataclass(frozen=True)
class Settings:
    """Times are in seconds, sizes in bytes."""

    model: str = "magika"
    workers: int = 1
    max_batch: int = 4
    max_wait: float = 0.002
    """How long the first file of a batch waits for company while all workers are busy."""
    max_pending: int = 256
    """Files that may wait for answers; more are refused."""
    max_upload: int = 16 * MEBIBYTE
    """Of one request, whatever is in it."""
    max_files: int = 256
    """In one job."""
    max_deadline: float = 60.0
    """The longest a client may ask for, and what holds when it asks for none."""
    drain: float = 20.0
    """How long what is under way may take at the end."""

    def __post_init__(self) -> None:
        check_name(self.model)
        for name in ("workers", "max_batch", "max_pending", "max_upload", "max_files"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in ("max_wait", "drain"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} must be a number of seconds, got {getattr(self, name)}")
        if not 0 < self.max_deadline < math.inf:
            raise ValueError(f"max_deadline must be a positive number of seconds, got {self.max_deadline}")
