"""What can be chosen for each call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, get_args

from aiospin._deadline import require_seconds

Delivery = Literal["at_most_once", "at_least_once"]
DELIVERIES: Final = get_args(Delivery)


@dataclass(frozen=True)
class Options:
    """Checked. See `Caller.options`."""

    timeout: float | None
    delivery: Delivery
    kill_after: float | None
    in_place: bool

    def __post_init__(self) -> None:
        for name in ("timeout", "kill_after"):
            require_seconds(name, getattr(self, name))
        if not isinstance(self.in_place, bool):
            raise TypeError(f"in_place must be True or False, got {self.in_place!r}")
        if self.delivery not in DELIVERIES:
            raise ValueError(f"delivery must be one of {', '.join(DELIVERIES)}, got {self.delivery!r}")

    def changed(self, given: Mapping[str, Any]) -> Options:
        """With other values for some."""
        return replace(self, **given)
