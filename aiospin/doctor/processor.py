"""Which CPU this is, whether it is a guest's, and by which clock it tells the time.

Guarantee: asks files, and the native module where it is there; never raises for what they hold.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping
from typing import Final

from aiospin import _backend
from aiospin.doctor.fact import Fact, good, plain, unknown, warning
from aiospin.doctor.machine import Machine

LINE: Final = 128
"""bytes between words that are waited for; native/platform/cacheline.h"""
IMPLEMENTERS: Final = {
    0x41: "Arm",
    0x42: "Broadcom",
    0x43: "Cavium",
    0x46: "Fujitsu",
    0x48: "HiSilicon",
    0x4E: "NVIDIA",
    0x51: "Qualcomm",
    0x61: "Apple",
    0xC0: "Ampere",
}
SLOW_CLOCKS: Final = {"hpet", "acpi_pm", "pit", "jiffies", "refined-jiffies", "xen", "hyperv_clocksource_msr"}
"""clock sources that are read by a system call, some also by leaving the guest"""


def examine(machine: Machine, features: Mapping[str, int] | None = None) -> Iterator[Fact]:
    """`features` is what the native module says of the CPU; by default it is asked."""
    if features is None:
        features = _backend.core.cpu_features() if _backend.name == "native" else {}
    fields = cpuinfo(machine)
    yield _model(fields)
    yield _vendor(fields)
    yield plain("architecture", f"{platform.machine()}, Linux {platform.release()}", platform.machine())
    yield _hypervisor(machine, fields, features)
    yield _line(features)
    yield from _counter(fields, features)
    yield _clock(machine)


def cpuinfo(machine: Machine) -> dict[str, str]:
    """What /proc/cpuinfo says of the first CPU."""
    fields: dict[str, str] = {}
    for line in (machine.text("proc/cpuinfo") or "").splitlines():
        name, colon, value = line.partition(":")
        if colon:
            fields.setdefault(name.strip(), value.strip())
    return fields


def flags(fields: Mapping[str, str]) -> set[str]:
    return set((fields.get("flags") or fields.get("Features") or "").split())


def _model(fields: Mapping[str, str]) -> Fact:
    if model := fields.get("model name"):
        return plain("model", model, model)
    if part := fields.get("CPU part"):
        return plain("model", f"part {part}", part)
    return unknown("model", "/proc/cpuinfo does not say")


def _vendor(fields: Mapping[str, str]) -> Fact:
    vendor = fields.get("vendor_id")
    if vendor is None:
        try:
            vendor = IMPLEMENTERS.get(int(fields.get("CPU implementer", ""), 16))
        except ValueError:
            vendor = None
    return unknown("vendor", "/proc/cpuinfo does not say") if not vendor else plain("vendor", vendor, vendor)


def is_guest(machine: Machine, fields: Mapping[str, str], features: Mapping[str, int]) -> bool:
    """Whether a hypervisor is there, as far as it shows itself."""
    return (
        bool(features.get("hypervisor"))
        or "hypervisor" in flags(fields)
        or machine.has("sys/hypervisor/type")
        or machine.has("proc/device-tree/hypervisor")
    )


def _hypervisor(machine: Machine, fields: Mapping[str, str], features: Mapping[str, int]) -> Fact:
    board = (machine.text(f"sys/class/dmi/id/{name}") for name in ("sys_vendor", "product_name"))
    kind = machine.text("sys/hypervisor/type")
    names = ", ".join(dict.fromkeys(name for name in (kind, *board) if name))
    if is_guest(machine, fields, features):
        return plain("hypervisor", f"yes: this is a guest ({names or 'it has no name'})", True)
    return plain("hypervisor", f"none seen ({names})" if names else "none seen", False)


def _line(features: Mapping[str, int]) -> Fact:
    largest = features.get("largest_line", 0)
    if not features:
        return unknown("monitored_line", "only the native extension asks the CPU")
    if largest == 0:
        return unknown("monitored_line", "the CPU does not tell")
    smallest = features.get("smallest_line") or largest
    text = f"{largest} bytes" if smallest == largest else f"{smallest} to {largest} bytes"
    if largest > LINE:
        return plain("monitored_line", f"{text}: more than the {LINE} that lie between words", largest)
    return good("monitored_line", text, largest)


def _counter(fields: Mapping[str, str], features: Mapping[str, int]) -> Iterator[Fact]:
    """The TSC. arm64's counter always runs at one rate."""
    if "fpu" not in flags(fields) and not features:
        return
    invariant = features.get("invariant_counter", {"constant_tsc", "nonstop_tsc"} <= flags(fields))
    if invariant:
        yield good("counter", "runs at one rate", True)
    elif features.get("waitpkg") or features.get("monitorx"):
        yield warning(
            "counter",
            "its rate is not promised",
            False,
            "The CPU can idle while it waits, but does not promise the rate of its counter (invariant TSC), so those "
            "rungs are not used.",
            "In a guest, let the hypervisor promise it (QEMU: -cpu host,+invtsc); else look for tsc= in the kernel's "
            "command line.",
        )
    else:
        yield plain("counter", "its rate is not promised (no invariant TSC)", False)


def _clock(machine: Machine) -> Fact:
    name = machine.text("sys/devices/system/clocksource/clocksource0/current_clocksource")
    if not name:
        return unknown("clock", "the kernel does not say which it reads")
    if name not in SLOW_CLOCKS:
        return good("clock", name, name)
    return warning(
        "clock",
        f"{name}: read by a system call",
        name,
        f"The kernel tells the time by {name}, which costs a system call, a microsecond or more, at each reading.",
        "See which others there are in /sys/devices/system/clocksource/clocksource0/available_clocksource, and choose "
        "tsc (or kvm-clock) there or with clocksource= in the kernel's command line.",
    )
