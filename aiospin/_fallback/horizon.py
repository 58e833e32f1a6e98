"""The learned horizon, as far as this backend needs one: not at all.

Guarantee: the same calls as the native Horizon. Assumption: a Python loop that watched a word would keep the GIL from
whoever is to write it, so this backend parks at once, whatever the policy says.
"""

from __future__ import annotations


class Horizon:
    """Accepts any policy and always says: park now. Times are microseconds."""

    __slots__ = ()

    def __init__(self, *policy: object, **fields: object) -> None:
        pass

    def observe_us(self, waited: float) -> None:
        """Learn nothing from a wait of that length."""

    def horizon_us(self) -> float:
        """How long to watch before parking."""
        return 0.0
