"""How many CPUs this process can keep busy, and who else takes of them: control groups, other guests.

Guarantee: shares are of the time since boot, or since the group began. What cannot be read counts as no limit.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Final

from aiospin import _cgroup
from aiospin.doctor.fact import Fact, good, plain, plural, unknown, warning
from aiospin.doctor.machine import Machine, whole

ENOUGH: Final = 2
"""one for the writer, and one for a reader that watches"""
STOLEN: Final = 0.01
THROTTLED: Final = 0.01
"""shares from which on they are worth a warning"""


def examine(machine: Machine, affinity: Callable[[], int] | None = None) -> Iterator[Fact]:
    """`affinity` says how many CPUs this process may run on; by default the kernel is asked."""
    try:
        allowed = len(os.sched_getaffinity(0)) if affinity is None else affinity()
        quota = _quota(machine)
    except (OSError, ValueError, OverflowError) as error:  # garbled files: numbers without end
        yield unknown("usable", str(error))
    else:
        yield _usable(allowed, quota)
        yield plain("affinity", plural(allowed, "CPU"), allowed)
        yield _shown_quota(quota)
    yield from _throttled(machine)
    yield _steal(machine)


def _quota(machine: Machine) -> float | None:
    """CPUs' worth of time that the tightest group grants."""
    found = [quota for group in _cgroup._groups("cpu", machine.root) for quota in _cgroup._quotas(group)]
    return min(found) if found else None


def _shown_quota(quota: float | None) -> Fact:
    if quota is None:
        return plain("quota", "none", None)
    return plain("quota", f"{quota:.3g} CPUs' worth of time", quota)


def _usable(allowed: int, quota: float | None) -> Fact:
    usable = allowed if quota is None else min(float(allowed), quota)
    text = plural(round(usable, 3), "CPU")
    if usable >= ENOUGH:
        return good("usable", text, usable)
    where = "affinity (taskset, cpuset, docker --cpuset-cpus)" if allowed < ENOUGH else "quota (docker --cpus, limits)"
    return warning(
        "usable",
        text,
        usable,
        f"With {text} a wait that watches takes the time of whoever is to write, so most waits park at once.",
        f"Give the process at least {ENOUGH}: widen its {where}, or use a bigger machine.",
    )


def _throttled(machine: Machine) -> Iterator[Fact]:
    """The group whose quota stopped it in the largest share of its periods."""
    shares: list[float] = []
    try:
        groups = list(_cgroup._groups("cpu", machine.root))
    except (OSError, ValueError):
        return
    for group in groups:
        lines = (machine.text(str(group.relative_to(machine.root) / "cpu.stat")) or "").splitlines()
        fields = {name: value for name, _, value in (line.partition(" ") for line in lines)}
        periods, throttled = whole(fields.get("nr_periods")), whole(fields.get("nr_throttled"))
        if periods and throttled is not None and 0 <= throttled <= periods:
            shares.append(throttled / periods)
    if not shares:
        return
    worst = max(shares)
    text = f"in {worst:.2%} of the periods"
    if worst < THROTTLED:
        yield good("throttled", text, worst)
    else:
        yield warning(
            "throttled",
            text,
            worst,
            f"The quota of the control group stopped its processes {text}, each time for up to a tenth of a second.",
            "Raise the quota, use fewer processes, or the policy `eco`, which watches less.",
        )


def _steal(machine: Machine) -> Fact:
    """Time in which this guest wanted to run and its host let others."""
    line = (machine.text("proc/stat") or "").partition("\n")[0].split()
    times = [whole(each) for each in line[1:9]]
    if not line or line[0] != "cpu" or len(times) < 8 or any(each is None or each < 0 for each in times):
        return unknown("steal", "/proc/stat does not say")
    counted = [each or 0 for each in times]
    share = counted[7] / max(1, sum(counted))
    text = f"{share:.2%} of the time since boot"
    if share < STOLEN:
        return good("steal", text, share)
    return warning(
        "steal",
        text,
        share,
        f"The host gave {share:.1%} of this guest's time to others. Whoever is to write or to wake then stands still, "
        "for milliseconds.",
        "Use a machine with dedicated CPUs, or one whose CPU credits are not used up.",
    )
