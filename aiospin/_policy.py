"""How long waits watch before they sleep: the knobs, the presets, and where a default comes from.

Guarantee: a policy is numbers only, checked when it is made. The arithmetic that follows from them is the backend's
(native/wait/policy.h says where it comes from).
"""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from aiospin import _backend

ENVIRONMENT: Final = "AIOSPIN_POLICY"
RUNGS: Final = ("umwait", "mwaitx", "tpause", "pause", "wfet", "wfe", "sb", "isb", "yield")
"""The rungs of all CPUs, best first for each; native/cpu/rung.h says what they promise."""


@dataclass(frozen=True)
class WaitPolicy:
    """How a wait divides its time between watching (fast, burns CPU) and parking (slow to wake, free).

    All times are microseconds. A wait first watches in place (`inline`), then through the waiter thread, or in the
    calling thread for sync calls (`monitor`), and then parks in the kernel until its bell rings. How long it watches is
    learned from recent waits within these bounds, and collapses to nothing when there are more waiters than cores.
    """

    name: str = "custom"
    minimum_us: float = 0.0
    """Watch at least this long, whatever was learned."""
    maximum_us: float = 0.0
    """Watch at most this long; 0 stands for the measured price of a park (15 to 65 us)."""
    inline_us: float = 20.0
    """The longest wait in an event loop's own thread."""
    core_share: float = 0.25
    """The share of one core that watching may use; 1 for no limit."""
    parks: bool = True
    """False: watch for ever. For a pinned core that has nothing else to do."""
    rung: str | None = None
    """How watching idles the CPU: one of RUNGS; None for the best that this machine has (`aiospin doctor` shows them).

    Whether it can be used is known where it is: there a queue made with it raises ValueError, which says why not. The
    pure-Python fallback does not watch, and takes no notice.
    """

    def __post_init__(self) -> None:
        for field in ("minimum_us", "maximum_us", "inline_us", "core_share"):
            value = getattr(self, field)
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise TypeError(f"{field} must be a number, got {value!r}")
            if not 0 <= value <= sys.float_info.max:
                raise ValueError(f"{field} must be finite and 0 or more, got {value!r}")
        if self.rung is not None and not isinstance(self.rung, str):
            raise TypeError(f"rung must be a name or None, got {self.rung!r}")
        if self.rung is not None and self.rung not in RUNGS:
            raise ValueError(f"rung {self.rung!r} is not one of {', '.join(RUNGS)}")
        if self.core_share > 1:
            raise ValueError(f"core_share must be from 0 to 1, got {self.core_share!r}")
        if self.maximum_us and self.minimum_us > self.maximum_us:
            raise ValueError(f"minimum_us {self.minimum_us!r} is above maximum_us {self.maximum_us!r}")

    def replace(self, **changes: float | bool | str | None) -> WaitPolicy:
        """A copy with some fields changed."""
        return dataclasses.replace(self, **{"name": "custom", **changes})  # type: ignore[arg-type]

    def horizon(self) -> _backend.core.Horizon:
        """The backend's learner for one endpoint under this policy. ValueError for a rung that cannot be used here."""
        return _backend.core.Horizon(
            minimum_us=self.minimum_us,
            maximum_us=self.maximum_us,
            inline_us=self.inline_us,
            core_share=self.core_share,
            parks=self.parks,
            rung=self.rung,
        )


PRESETS: Final[Mapping[str, WaitPolicy]] = {
    policy.name: policy
    for policy in (
        WaitPolicy("eco", maximum_us=5.0, inline_us=5.0, core_share=0.05),
        WaitPolicy("balanced"),
        WaitPolicy("latency", maximum_us=200.0, core_share=1.0),
        WaitPolicy("pinned", core_share=1.0, parks=False),
    )
}


def resolve(policy: WaitPolicy | str | None) -> WaitPolicy:
    """A policy from what the user gave: an object, a preset's name, or None for AIOSPIN_POLICY, else `balanced`.

    Raises ValueError naming what is not a preset, or a rung that cannot be used here and why; TypeError otherwise.
    """
    if isinstance(policy, WaitPolicy):
        _require_rung(policy.rung)
        return policy
    if policy is None:
        name, source = os.environ.get(ENVIRONMENT) or "balanced", f"{ENVIRONMENT}="
    elif isinstance(policy, str):
        name, source = policy, "policy="
    else:
        raise TypeError(f"policy must be a WaitPolicy, the name of a preset, or None, got {policy!r}")
    if name not in PRESETS:
        raise ValueError(f"{source}{name!r} is not one of the presets {', '.join(PRESETS)}")
    return PRESETS[name]


def _require_rung(rung: str | None) -> None:
    """Raises ValueError for a rung that this machine has not, with the reason; the fallback has none and needs none."""
    if rung is None or _backend.name != "native":
        return
    refusals = dict(_backend.core.rungs())
    if rung not in refusals:
        raise ValueError(f"rung {rung!r} is not one of this kind of CPU, which has {', '.join(refusals)}")
    if refusals[rung] is not None:
        raise ValueError(f"rung {rung!r} cannot be used here: {refusals[rung]}")
