"""How the kernel lets a CPU sleep when nobody runs on it, which is how long a parked wait takes to wake.

Guarantee: reads /sys only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from aiospin.doctor.fact import Fact, good, plain, unknown, warning
from aiospin.doctor.machine import Machine

CPUIDLE: Final = "sys/devices/system/cpu/cpuidle"
STATES: Final = "sys/devices/system/cpu/cpu0/cpuidle"
LONG_US: Final = 200
"""a park that takes so long to wake is dearer than any horizon that is learned"""


@dataclass(frozen=True)
class State:
    """One way of cpu0 to sleep."""

    name: str
    latency_us: int
    disabled: bool


def examine(machine: Machine) -> Iterator[Fact]:
    driver = machine.text(f"{CPUIDLE}/current_driver")
    governor = machine.text(f"{CPUIDLE}/current_governor") or machine.text(f"{CPUIDLE}/current_governor_ro")
    yield plain("driver", driver, driver) if driver else unknown("driver", f"there is no /{CPUIDLE}")
    if governor:
        yield plain("governor", governor, governor)
    states = list(_states(machine))
    if not states:
        if "idle=poll" in (machine.text("proc/cmdline") or "").split():
            yield plain("states", "none: idle=poll, the CPUs never sleep", [])
        else:
            yield unknown("states", "none to be seen (a guest's are its host's)")
        return
    yield plain("states", ", ".join(map(_shown, states)), [state.name for state in states])
    yield _deepest(states)


def _states(machine: Machine) -> Iterator[State]:
    for entry in machine.names(STATES):
        if entry.startswith("state"):
            name = machine.text(f"{STATES}/{entry}/name") or entry
            latency = machine.number(f"{STATES}/{entry}/latency")
            disabled = machine.number(f"{STATES}/{entry}/disable")
            yield State(name.replace("\n", " "), max(0, latency or 0), bool(disabled))


def _shown(state: State) -> str:
    return f"{state.name} ({'off' if state.disabled else f'{state.latency_us} us'})"


def _deepest(states: list[State]) -> Fact:
    allowed = [state for state in states if not state.disabled]
    if not allowed:
        return good("slowest_wake", "none is allowed: the CPUs never sleep", 0)
    deepest = max(allowed, key=lambda state: state.latency_us)
    text = f"{deepest.latency_us} us from {deepest.name}"
    if deepest.latency_us <= LONG_US:
        return good("slowest_wake", text, deepest.latency_us)
    return warning(
        "slowest_wake",
        text,
        deepest.latency_us,
        f"A CPU that has slept for long takes {deepest.latency_us} us to wake from {deepest.name}, and so does a wait "
        "that parked.",
        f"Where that matters: `cpupower idle-set -D {LONG_US}`, or the policy `latency`, which parks later.",
    )
