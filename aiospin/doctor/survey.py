"""Every subject in the order of the report.

Guarantee: a survey never fails for what a machine lacks or hides; each subject says so in its facts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from aiospin.doctor import cores, idle, limits, memory, processor, reach, rungs, settings, software
from aiospin.doctor.fact import Fact, Section
from aiospin.doctor.machine import Machine

SUBJECTS: Final[Mapping[str, tuple[str, Callable[[Machine], Iterator[Fact]]]]] = {
    "software": ("Software", software.examine),
    "settings": ("Settings", settings.examine),
    "cpu": ("CPU", processor.examine),
    "rungs": ("Rungs, best first: how a wait idles the CPU", rungs.examine),
    "idle": ("How a CPU sleeps when a wait parks", idle.examine),
    "cores": ("CPUs for this process", cores.examine),
    "reach": ("How processes find each other", reach.examine),
    "memory": ("Memory", memory.examine),
    "limits": ("What the kernel allows", limits.examine),
}


def survey(machine: Machine) -> list[Section]:
    return [Section(name, title, tuple(examine(machine))) for name, (title, examine) in SUBJECTS.items()]
