"""The machine's own power meters: RAPL's energy counters, and the sensors of hwmon.

Guarantee: a meter answers with watts, or with None once it could not be read. `find_meter` says why there is none.
Assumption: counters count microjoules and wrap at most once while they are watched; power sensors show microwatts, and
are looked at often enough while somebody measures.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from aiospin.doctor.machine import Machine

POWERCAP: Final = "sys/class/powercap"
HWMON: Final = "sys/class/hwmon"
OF_CPUS: Final = ("amd_energy", "zenpower", "fam15h_power")
"""sensors that measure CPUs, best first"""
OF_OTHERS: Final = ("amdgpu", "i915", "nouveau", "nvme", "radeon", "xe")
"""sensors that measure something else"""
MICRO: Final = 1e-6


class Meter(Protocol):
    """One measurement: `begin`, `look` now and then, `watts` at the end."""

    @property
    def name(self) -> str: ...
    def begin(self) -> None: ...
    def look(self) -> None: ...
    def watts(self, seconds: float) -> float | None: ...


@dataclass(frozen=True)
class Counter:
    """A file with microjoules, and where it begins anew."""

    path: str
    wraps_at: int | None


class EnergyMeter:
    """Several counters together."""

    def __init__(self, machine: Machine, name: str, counters: Sequence[Counter]) -> None:
        self.name = name
        self._machine = machine
        self._counters = counters
        self._begun: list[int | None] = []

    def begin(self) -> None:
        self._begun = self._read()

    def look(self) -> None:
        """A counter needs no looking at in between."""

    def watts(self, seconds: float) -> float | None:
        used = 0
        for counter, before, after in zip(self._counters, self._begun, self._read(), strict=True):
            if before is None or after is None:
                return None
            if after < before:
                if counter.wraps_at is None:
                    return None
                after += counter.wraps_at
            used += after - before
        return used * MICRO / seconds

    def _read(self) -> list[int | None]:
        return [self._machine.number(counter.path) for counter in self._counters]


class PowerMeter:
    """Several sensors together, each the mean of what it showed."""

    def __init__(self, machine: Machine, name: str, paths: Sequence[str]) -> None:
        self.name = name
        self._machine = machine
        self._paths = paths
        self._shown: list[int] = []
        self._failed = False

    def begin(self) -> None:
        self._shown, self._failed = [], False
        self.look()

    def look(self) -> None:
        shown = [self._machine.number(path) for path in self._paths]
        self._failed = self._failed or None in shown
        self._shown.append(sum(each or 0 for each in shown))

    def watts(self, seconds: float) -> float | None:
        self.look()
        return None if self._failed else sum(self._shown) / len(self._shown) * MICRO


def find_meter(machine: Machine) -> tuple[Meter | None, str]:
    """The meter that is nearest to the CPUs, and its name; or None, and why there is none."""
    reasons: list[str] = []
    for find in (_rapl, _hwmon):
        for found in find(machine):
            if not isinstance(found, str):
                return found, found.name
            reasons.append(found)
    return None, "; ".join(dict.fromkeys(reasons)) or f"neither /{POWERCAP} nor /{HWMON} has one"


def _rapl(machine: Machine) -> Iterator[Meter | str]:
    """The packages, not what is inside them, nor the whole machine around them. MSRs before their copy in MMIO."""
    zones = [name for name in machine.names(POWERCAP) if name.startswith("intel-rapl") and name.count(":") == 1]
    for prefix in ("intel-rapl:", "intel-rapl-mmio:"):
        packages = {zone: machine.text(f"{POWERCAP}/{zone}/name") or zone for zone in zones if zone.startswith(prefix)}
        packages = {zone: name for zone, name in packages.items() if name.startswith("package")} or packages
        if not packages:
            continue
        counters = [
            Counter(f"{POWERCAP}/{zone}/energy_uj", machine.number(f"{POWERCAP}/{zone}/max_energy_range_uj"))
            for zone in packages
        ]
        unread = [counter.path for counter in counters if machine.number(counter.path) is None]
        if unread:
            yield machine.why_unread(unread[0])
        else:
            yield EnergyMeter(machine, f"RAPL ({', '.join(packages.values())})", counters)


def _hwmon(machine: Machine) -> Iterator[Meter | str]:
    """Sensors of CPUs, then those of boards."""
    devices = [(machine.text(f"{HWMON}/{each}/name") or each, f"{HWMON}/{each}") for each in machine.names(HWMON)]
    ranked = sorted(devices, key=lambda each: OF_CPUS.index(each[0]) if each[0] in OF_CPUS else len(OF_CPUS))
    for name, place in ranked:
        if name in OF_OTHERS:
            continue
        files = machine.names(place)
        for kind in ("energy", "power"):
            inputs = [each for each in files if each.startswith(kind) and each.endswith("_input")]
            labels = {each: machine.text(f"{place}/{each.removesuffix('_input')}_label") or each for each in inputs}
            # amd_energy counts each core and each socket: the latter have all of the former in them.
            sockets = [each for each in inputs if labels[each].startswith("Esocket")]
            chosen = sockets or inputs
            if not chosen:
                continue
            paths = [f"{place}/{each}" for each in chosen]
            unread = [path for path in paths if machine.number(path) is None]
            title = f"{name} ({', '.join(labels[each] for each in chosen)})"
            if unread:
                yield machine.why_unread(unread[0])
            elif kind == "energy":
                yield EnergyMeter(machine, title, [Counter(path, None) for path in paths])
            else:
                yield PowerMeter(machine, title, paths)
