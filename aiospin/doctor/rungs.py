"""Which rungs this CPU has, which one waits idle with, and what the kernel allows it.

Guarantee: the verdicts are the native module's own, each from trying the instruction; nothing is tried twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from aiospin import _backend
from aiospin.doctor.fact import Fact, good, plain, unknown, warning
from aiospin.doctor.machine import Machine, whole
from aiospin.doctor.processor import cpuinfo, is_guest

Verdicts = Sequence[tuple[str, str | None]]

UMWAIT: Final = "sys/devices/system/cpu/umwait_control"
IN_VAIN_US: Final = 20
"""a monitor that keeps ending sooner than this, for nothing, is demoted (native/cpu/rung.cpp)"""
USUAL_TICKS: Final = 100_000
"""of max_time, as Linux sets it"""


def usable(verdicts: Verdicts) -> list[str]:
    """The names of those that can be used here, best first."""
    return [name for name, refusal in verdicts if refusal is None]


def verdicts() -> Verdicts:
    """Every rung of this build with why it cannot be used; none on the fallback, which does not watch."""
    return _backend.core.rungs() if _backend.name == "native" else ()


def examine(machine: Machine, found: Verdicts | None = None, chosen: str | None = None) -> Iterator[Fact]:
    """`found` and `chosen` are the native module's by default."""
    found = verdicts() if found is None else found
    chosen = _backend.rung() if chosen is None else chosen
    names = usable(found)
    guest = is_guest(machine, cpuinfo(machine), {})
    for name, refusal in found:
        if refusal is not None:
            yield plain(name, f"no: {refusal}", refusal)
        elif name == "mwaitx" and guest:
            yield _mwaitx_in_a_guest(chosen == "mwaitx")
        else:
            yield good(name, "usable", None)
    yield _choice(names, chosen, machine)
    yield from _umwait(machine, "umwait" in names or "tpause" in names, chosen)


def _mwaitx_in_a_guest(chosen: bool) -> Fact:
    if not chosen:
        return plain("mwaitx", "usable, but a hypervisor may make it end at once", None)
    return warning(
        "mwaitx",
        "usable, but a hypervisor may make it end at once",
        None,
        "Hypervisors often intercept mwaitx and make it do nothing: each wait then leaves the guest, for microseconds, "
        "and saves no power.",
        "Compare: `aiospin doctor --measure-power`. If pause wakes sooner there, set AIOSPIN_RUNG=pause.",
    )


def _choice(names: Sequence[str], chosen: str, machine: Machine) -> Fact:
    if chosen == "park":
        return plain("choice", "park: the pure-Python fallback does not watch", chosen)
    if chosen == "yield":
        return warning(
            "choice",
            "yield: a system call at each look",
            chosen,
            "Waits watch with yield alone, a system call at each look, because it was asked for or nothing else can "
            "be used.",
            "The lines above say why the others cannot be used; if they can, unset AIOSPIN_RUNG.",
        )
    if machine.environ.get(_backend.RUNG):
        best = f"; the best is {names[0]}" if names and names[0] != chosen else ""
        return plain("choice", f"{chosen}, as {_backend.RUNG} says{best}", chosen)
    return plain("choice", f"{chosen}: the best that can be used here", chosen)


def _umwait(machine: Machine, usable: bool, chosen: str) -> Iterator[Fact]:
    """The kernel's limits for umwait and tpause, where it has them."""
    if not machine.has(UMWAIT):
        if usable:
            yield unknown("umwait_max_time", f"there is no /{UMWAIT}")
        return
    yield _max_time(machine, usable, chosen)
    deep = machine.number(f"{UMWAIT}/enable_c02")
    if deep is None:
        yield unknown("umwait_c02", machine.why_unread(f"{UMWAIT}/enable_c02"))
    elif deep:
        yield good("umwait_c02", "allowed", True)
    else:
        yield plain("umwait_c02", f"forbidden: less is saved (/{UMWAIT}/enable_c02)", False)


def _max_time(machine: Machine, usable: bool, chosen: str) -> Fact:
    ticks = machine.number(f"{UMWAIT}/max_time")
    if ticks is None or ticks < 0:
        return unknown("umwait_max_time", machine.why_unread(f"{UMWAIT}/max_time"))
    if ticks == 0:
        return good("umwait_max_time", "without limit", 0)
    us = ticks / ticks_per_us(machine)
    text = f"{ticks} ticks, about {us:.3g} us"
    if us >= IN_VAIN_US or not usable:
        return good("umwait_max_time", text, ticks)
    return warning(
        "umwait_max_time",
        text,
        ticks,
        f"The kernel ends each umwait after {us:.3g} us. Ends within {IN_VAIN_US} us count as in vain, and waits then "
        f"watch with a lesser rung{' than umwait' if chosen == 'umwait' else ''}.",
        f"As root: echo {USUAL_TICKS} > /{UMWAIT}/max_time",
    )


def ticks_per_us(machine: Machine) -> float:
    """Of the TSC: Linux counts two "BogoMIPS" per MHz of it."""
    text = cpuinfo(machine).get("bogomips", "")
    millions = whole(text.partition(".")[0])
    return millions / 2 if millions else 3000
