"""The learned horizon, as far as this backend needs one: not at all.

Guarantee: the same calls as the native Horizon. Assumption: a Python loop that watched a word would keep the GIL from
whoever is to write it, so this backend parks at once, whatever the policy says.
"""

from __future__ import annotations


class Horizon:
    """Accepts any policy and always says: park now. `cpus` is what the waits of this queue may keep busy."""

    __slots__ = ("cpus",)

    def __init__(self, **policy: object) -> None:
        self.cpus = 1

    def observe(self, wait_us: float, rang: bool = False) -> None:
        """Learn nothing from a wait of that length."""

    def horizon_us(self, now_us: float) -> float:
        """How long to watch before parking."""
        return 0.0
