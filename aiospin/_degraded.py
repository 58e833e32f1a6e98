"""Says once per process what the kernel refuses, and what that costs.

Guarantee: one log line for each thing that is refused, formatted at once. Assumption: a system call that a seccomp
filter or an old kernel refuses will be refused again.
"""

from __future__ import annotations

import logging

_told: set[str] = set()


def tell(refused: str, consequence: str) -> None:
    """Log it as a warning of "aiospin", the first time."""
    if refused not in _told:
        _told.add(refused)
        logging.getLogger("aiospin").warning(f"the kernel refuses {refused}: {consequence}")
