"""What the environment says, under the names that a model server has for it. Read once, when the package is imported.

    VLLM_USE_SPINLOOP_EXT              "0" keeps waits from using the CPU's low-power instructions; unset they are used,
                                       since importing the package is the opt-in
    VLLM_RINGBUFFER_WARNING_INTERVAL   seconds after which a wait tells its story, 60 if unset

Guarantee: a value that cannot be meant is a ValueError that names it.
"""

from __future__ import annotations

import math
import os
from typing import Final

from aiospin._policy import WaitPolicy, resolve


def _native_wait() -> bool:
    text = os.environ.get("VLLM_USE_SPINLOOP_EXT", "1")
    try:
        return int(text) != 0
    except ValueError:
        raise ValueError(f"VLLM_USE_SPINLOOP_EXT must be 0 or 1, got {text!r}") from None


def _warning_interval() -> float:
    text = os.environ.get("VLLM_RINGBUFFER_WARNING_INTERVAL", "60")
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds < math.inf:
        raise ValueError(f"VLLM_RINGBUFFER_WARNING_INTERVAL must be a number of seconds above 0, got {text!r}")
    return seconds


NATIVE_WAIT: Final = _native_wait()
WARNING_INTERVAL: Final = _warning_interval()


def policy() -> WaitPolicy:
    """How queues wait: as AIOSPIN_POLICY says, and without the CPU's wait instructions where those were turned off."""
    chosen = resolve(None)
    return chosen if NATIVE_WAIT else chosen.replace(rung="yield")
