"""What can be chosen for each call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, get_args

from aiospin._deadline import Deadline

Delivery = Literal["at_most_once", "at_least_once"]
DELIVERIES: Final = get_args(Delivery)


@dataclass(frozen=True)
class Options:
    """Checked. See `Caller.options`."""

    timeout: float | None
    delivery: Delivery
    kill_after: float | None

    def __post_init__(self) -> None:
        for seconds in (self.timeout, self.kill_after):
            Deadline(seconds)
        if self.delivery not in DELIVERIES:
            raise ValueError(f"delivery must be one of {', '.join(DELIVERIES)}, got {self.delivery!r}")

    def changed(self, given: Mapping[str, Any]) -> Options:
        """With other values for some."""
        return replace(self, **given)
