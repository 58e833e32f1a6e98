"""What each subject finds on machines that are laid out for it: what will hurt is said so, with a way out."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from machines import ARM, V2, X86, Lab, by_name

from aiospin.doctor import cores, idle, limits, memory, processor, reach, rungs, settings, software
from aiospin.doctor.fact import Fact

GIB = 1 << 30
MIB = 1 << 20


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


def warned(facts: dict[str, Fact]) -> set[str]:
    return {name for name, fact in facts.items() if fact.verdict == "warn"}


# the CPU


def test_an_intel_server(lab: Lab) -> None:
    lab.write("proc/cpuinfo", X86)
    lab.write("sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc")
    features = {"waitpkg": 1, "invariant_counter": 1, "hypervisor": 0, "smallest_line": 64, "largest_line": 64}
    facts = by_name(processor.examine(lab, features))
    assert facts["model"].text == "Intel(R) Xeon(R) Platinum 8488C"
    assert facts["vendor"].value == "GenuineIntel"
    assert facts["hypervisor"].value is False
    assert facts["monitored_line"].text == "64 bytes"
    assert not warned(facts)


def test_an_arm_server(lab: Lab) -> None:
    lab.write("proc/cpuinfo", ARM)
    features = {"evtstrm": 1, "invariant_counter": 1, "hypervisor": 0, "smallest_line": 64, "largest_line": 256}
    facts = by_name(processor.examine(lab, features))
    assert (facts["model"].text, facts["vendor"].text) == ("part 0xd40", "Arm")
    assert "more than the 128" in facts["monitored_line"].text
    assert not warned(facts)


def test_a_guest_is_told_by_its_board(lab: Lab) -> None:
    lab.write("sys/class/dmi/id/sys_vendor", "QEMU")
    lab.write("sys/class/dmi/id/product_name", "Standard PC")
    assert by_name(processor.examine(lab, {"hypervisor": 0}))["hypervisor"].text == "none seen (QEMU, Standard PC)"
    facts = by_name(processor.examine(lab, {"hypervisor": 1}))
    assert facts["hypervisor"].text == "yes: this is a guest (QEMU, Standard PC)"
    assert facts["hypervisor"].value is True


@pytest.mark.parametrize("sign", ["proc/cpuinfo", "sys/hypervisor/type", "proc/device-tree/hypervisor/compatible"])
def test_a_guest_is_told_without_the_extension(lab: Lab, sign: str) -> None:
    lab.write(sign, "flags: fpu hypervisor" if sign == "proc/cpuinfo" else "xen")
    assert by_name(processor.examine(lab, {}))["hypervisor"].value is True


def test_a_counter_whose_rate_is_not_promised_hurts_where_a_rung_needs_it(lab: Lab) -> None:
    lab.write("proc/cpuinfo", "flags: fpu tsc")
    able = {"waitpkg": 1, "monitorx": 0, "invariant_counter": 0}
    assert warned(by_name(processor.examine(lab, able))) == {"counter"}
    assert not warned(by_name(processor.examine(lab, {**able, "waitpkg": 0})))
    assert by_name(processor.examine(lab, {}))["counter"].value is False


@pytest.mark.parametrize("name", sorted(processor.SLOW_CLOCKS))
def test_a_slow_clock_hurts(lab: Lab, name: str) -> None:
    lab.write("sys/devices/system/clocksource/clocksource0/current_clocksource", name)
    fact = by_name(processor.examine(lab, {}))["clock"]
    assert fact.verdict == "warn" and name in str(fact.problem) and "available_clocksource" in str(fact.remedy)


# rungs


VERDICTS = [("umwait", None), ("mwaitx", "CPUID reports no MONITORX"), ("tpause", None), ("pause", None)]


def test_each_rung_has_its_verdict_and_the_choice_its_reason(lab: Lab) -> None:
    facts = by_name(rungs.examine(lab, VERDICTS, "umwait"))
    assert facts["umwait"].verdict == facts["pause"].verdict == "ok"
    assert facts["mwaitx"].text == "no: CPUID reports no MONITORX"
    assert facts["choice"].text == "umwait: the best that can be used here"
    assert not warned(facts)
    asked = Lab(lab.root, {"AIOSPIN_RUNG": "pause"})
    assert (
        by_name(rungs.examine(asked, VERDICTS, "pause"))["choice"].text
        == "pause, as AIOSPIN_RUNG says; the best is umwait"
    )


def test_nothing_but_yield_hurts(lab: Lab) -> None:
    assert warned(by_name(rungs.examine(lab, [("pause", "no"), ("yield", None)], "yield"))) == {"choice"}


def test_mwaitx_in_a_guest_hurts_when_it_is_chosen(lab: Lab) -> None:
    verdicts = [("mwaitx", None), ("pause", None)]
    assert not warned(by_name(rungs.examine(lab, verdicts, "mwaitx")))
    lab.write("proc/cpuinfo", "flags: fpu hypervisor")
    assert warned(by_name(rungs.examine(lab, verdicts, "mwaitx"))) == {"mwaitx"}
    assert not warned(by_name(rungs.examine(lab, verdicts, "pause")))


def test_the_fallback_has_no_rungs(lab: Lab) -> None:
    facts = by_name(rungs.examine(lab, [], "park"))
    assert list(facts) == ["choice"] and not warned(facts)


@pytest.mark.parametrize(
    ("ticks", "hurts", "text"),
    [
        (100000, False, "100000 ticks, about 41.7 us"),
        (24000, True, "24000 ticks, about 10 us"),
        (0, False, "without limit"),
    ],
)
def test_a_kernel_that_ends_umwait_early_hurts(lab: Lab, ticks: int, hurts: bool, text: str) -> None:
    lab.write("proc/cpuinfo", X86)
    lab.write("sys/devices/system/cpu/umwait_control/max_time", ticks)
    lab.write("sys/devices/system/cpu/umwait_control/enable_c02", 0)
    facts = by_name(rungs.examine(lab, VERDICTS, "umwait"))
    assert warned(facts) == ({"umwait_max_time"} if hurts else set())
    assert facts["umwait_max_time"].text == text
    assert facts["umwait_c02"].value is False
    without = [("umwait", "it raised SIGILL"), ("pause", None)]
    assert not warned(by_name(rungs.examine(lab, without, "pause")))


def test_umwait_without_its_limits_is_not_known(lab: Lab) -> None:
    assert by_name(rungs.examine(lab, VERDICTS, "umwait"))["umwait_max_time"].verdict == "unknown"


# how a CPU sleeps


def states(lab: Lab, *found: tuple[str, int, int]) -> None:
    lab.write("sys/devices/system/cpu/cpuidle/current_driver", "intel_idle")
    lab.write("sys/devices/system/cpu/cpuidle/current_governor_ro", "menu")
    for number, (name, latency, disabled) in enumerate(found):
        place = f"sys/devices/system/cpu/cpu0/cpuidle/state{number}"
        for file, value in (("name", name), ("latency", latency), ("disable", disabled)):
            lab.write(f"{place}/{file}", value)


def test_deep_sleep_hurts_while_it_is_allowed(lab: Lab) -> None:
    states(lab, ("POLL", 0, 0), ("C1", 2, 0), ("C10", 890, 0))
    facts = by_name(idle.examine(lab))
    assert warned(facts) == {"slowest_wake"}
    assert facts["slowest_wake"].text == "890 us from C10"
    assert facts["states"].text == "POLL (0 us), C1 (2 us), C10 (890 us)"
    assert (facts["driver"].text, facts["governor"].text) == ("intel_idle", "menu")
    states(lab, ("POLL", 0, 0), ("C1", 2, 0), ("C10", 890, 1))
    facts = by_name(idle.examine(lab))
    assert not warned(facts) and facts["slowest_wake"].value == 2
    states(lab, ("POLL", 0, 1), ("C1", 2, 1), ("C10", 890, 1))
    assert by_name(idle.examine(lab))["slowest_wake"].value == 0


def test_states_are_ordered_as_they_count(lab: Lab) -> None:
    states(lab, *((f"S{number}", number, 0) for number in range(11)))
    assert by_name(idle.examine(lab))["states"].value == [f"S{number}" for number in range(11)]


def test_idle_poll_has_no_states(lab: Lab) -> None:
    lab.write("proc/cmdline", "ro idle=poll quiet")
    assert "never sleep" in by_name(idle.examine(lab))["states"].text


# CPUs


def group(lab: Lab, name: str, value: str) -> None:
    lab.write("proc/self/mountinfo", V2)
    lab.write("proc/self/cgroup", "0::/box")
    lab.write(f"sys/fs/cgroup/box/{name}", value)


def test_one_cpu_hurts(lab: Lab) -> None:
    facts = by_name(cores.examine(lab, lambda: 1))
    assert warned(facts) == {"usable"}
    assert "taskset" in str(facts["usable"].remedy)


def test_a_small_quota_hurts_and_a_large_one_does_not(lab: Lab) -> None:
    group(lab, "cpu.max", "150000 100000")
    facts = by_name(cores.examine(lab, lambda: 8))
    assert warned(facts) == {"usable"}
    assert facts["usable"].text == "1.5 CPUs" and "--cpus" in str(facts["usable"].remedy)
    group(lab, "cpu.max", "400000 100000")
    facts = by_name(cores.examine(lab, lambda: 8))
    assert not warned(facts) and facts["usable"].value == 4


def test_version_1_of_control_groups(lab: Lab) -> None:
    lab.write("proc/self/mountinfo", "34 32 0:30 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct")
    lab.write("proc/self/cgroup", "3:cpu,cpuacct:/box")
    lab.write("sys/fs/cgroup/cpu/box/cpu.cfs_quota_us", 50000)
    lab.write("sys/fs/cgroup/cpu/box/cpu.cfs_period_us", 100000)
    lab.write("sys/fs/cgroup/cpu/box/cpu.stat", "nr_periods 50\nnr_throttled 25")
    assert warned(by_name(cores.examine(lab, lambda: 8))) == {"usable", "throttled"}


def test_being_throttled_hurts(lab: Lab) -> None:
    group(lab, "cpu.stat", "usage_usec 5\nnr_periods 1000\nnr_throttled 10")
    facts = by_name(cores.examine(lab, lambda: 8))
    assert warned(facts) == {"throttled"} and facts["throttled"].value == 0.01
    group(lab, "cpu.stat", "nr_periods 1000\nnr_throttled 9")
    assert not warned(by_name(cores.examine(lab, lambda: 8)))


def test_stolen_time_hurts(lab: Lab) -> None:
    lab.write("proc/stat", "cpu  50 0 20 20 0 0 0 10 0 0\ncpu0 1 1")
    facts = by_name(cores.examine(lab, lambda: 8))
    assert warned(facts) == {"steal"} and facts["steal"].value == 0.1
    lab.write("proc/stat", "cpu  50 0 20 929 0 0 0 1 0 0")
    assert not warned(by_name(cores.examine(lab, lambda: 8)))


def test_an_affinity_that_is_not_told_is_not_known(lab: Lab) -> None:
    def refuse() -> int:
        raise OSError(errno.EPERM, "no")

    assert by_name(cores.examine(lab, refuse))["usable"].verdict == "unknown"


# how processes find each other


def reached(lab: Lab, follow: Callable[[], str | None] = lambda: None, seen: bool | None = True) -> dict[str, Fact]:
    return by_name(reach.examine(lab, follow, lambda: seen))


def test_the_machines_own_namespace_and_one_of_its_own(lab: Lab) -> None:
    place = lab.root / "proc/self/ns"
    place.mkdir(parents=True)
    (place / "pid").symlink_to("pid:[4026531836]")
    assert reached(lab)["pid_namespace"].value == "first"
    (place / "pid").unlink()
    (place / "pid").symlink_to("pid:[4026532999]")
    assert reached(lab)["pid_namespace"].value == "own"
    assert not warned(reached(lab))


def test_without_proc_nothing_is_found(lab: Lab) -> None:
    assert warned(reached(lab)) == {"proc"}


def test_proc_of_another_namespace_hurts(lab: Lab) -> None:
    lab.write("proc/self/mountinfo", "22 27 0:21 / /proc rw,relatime - proc proc rw")
    (lab.root / "proc/self").rename(lab.root / "proc/00")
    (lab.root / "proc/self").symlink_to("00")
    facts = reached(lab)
    assert warned(facts) == {"proc"} and "another PID namespace" in facts["proc"].text
    (lab.root / "proc/self").unlink()
    (lab.root / "proc/00").rename(lab.root / f"proc/{os.getpid()}")
    (lab.root / "proc/self").symlink_to(str(os.getpid()))
    assert not warned(reached(lab))


def test_hidden_processes_and_yama_are_told(lab: Lab) -> None:
    lab.write("proc/self/mountinfo", "22 27 0:21 / /proc rw,relatime - proc proc rw,hidepid=invisible")
    lab.write("proc/sys/kernel/yama/ptrace_scope", 1)
    facts = reached(lab)
    assert "hidepid=invisible" in facts["proc"].text
    assert facts["ptrace_scope"].value == 1
    assert not warned(facts)


def test_what_a_child_could_not_open_hurts(lab: Lab) -> None:
    lab.write("proc/self/mountinfo", "22 27 0:21 / /proc rw,relatime - proc proc rw")
    facts = reached(lab, lambda: "Permission denied", seen=False)
    assert warned(facts) == {"dumpable", "text_handles"}
    assert "Permission denied" in str(facts["text_handles"].problem)
    assert reached(lab, seen=None)["dumpable"].verdict == "unknown"


@pytest.mark.parametrize(
    "error",
    [OSError(errno.EAGAIN, "Try again"), subprocess.TimeoutExpired("child", 30), AttributeError("memfd_create")],
)
def test_what_could_not_be_tried_is_not_known(lab: Lab, error: Exception) -> None:
    def fail() -> str | None:
        raise error

    assert reached(lab, fail)["text_handles"].verdict == "unknown"


def test_a_child_follows_a_handles_path_here(leaves_nothing: object) -> None:
    assert reach.follow() is None
    assert reach.dumpable() is True


# memory


def told(free: int, size: int, inodes: tuple[int, int] = (0, 0), flags: int = 0) -> memory.Statvfs:
    def statvfs(path: str | Path) -> os.statvfs_result:
        every, left = inodes
        return os.statvfs_result((4096, 4096, size // 4096, free // 4096, free // 4096, every, left, left, flags, 255))

    return statvfs


def test_room_in_memory_and_in_dev_shm(lab: Lab) -> None:
    lab.write("proc/meminfo", f"MemTotal: {64 * MIB} kB\nMemAvailable: {32 * MIB} kB")
    facts = by_name(memory.examine(lab, told(GIB, 2 * GIB)))
    assert not warned(facts)
    assert (facts["machine"].text, facts["free"].text) == ("64 GiB", "32 GiB")
    assert facts["shm"].text == "1 GiB of 2 GiB free in /dev/shm"
    assert by_name(memory.examine(lab, told(0, 0)))["shm"].text == "/dev/shm has no limit"


def test_a_tight_group_and_a_full_dev_shm_hurt(lab: Lab) -> None:
    lab.write("proc/meminfo", f"MemTotal: {64 * MIB} kB\nMemAvailable: {32 * MIB} kB")
    group(lab, "memory.max", str(100 * MIB))
    lab.write("sys/fs/cgroup/box/memory.current", 99 * MIB)
    facts = by_name(memory.examine(lab, told(MIB, 64 * MIB)))
    assert warned(facts) == {"free", "shm"}
    assert facts["group_limit"].value == 100 * MIB
    assert "box" in str(facts["free"].problem)


def test_dev_shm_on_a_disk_or_missing_hurts(lab: Lab) -> None:
    lab.write("proc/self/mountinfo", "25 24 0:23 / /dev/shm rw - ext4 /dev/sda rw")
    fact = by_name(memory.examine(lab, told(GIB, GIB)))["shm"]
    assert fact.verdict == "warn" and "ext4" in fact.text
    assert warned(by_name(memory.examine(lab))) == {"shm"}


@pytest.mark.parametrize(
    ("statvfs", "why"),
    [
        (told(GIB, GIB, flags=os.ST_RDONLY), "it is mounted read-only"),
        (told(GIB, GIB, inodes=(1, 0)), "it has no inode left"),
    ],
)
def test_dev_shm_where_no_file_can_be_made_hurts(lab: Lab, statvfs: memory.Statvfs, why: str) -> None:
    lab.write("proc/self/mountinfo", "25 24 0:23 / /dev/shm rw - tmpfs tmpfs rw")
    fact = by_name(memory.examine(lab, statvfs))["shm"]
    assert fact.verdict == "warn" and why in fact.text
    assert not warned(by_name(memory.examine(lab, told(GIB, GIB, inodes=(9, 1)))))


# limits


def test_limits_that_are_wide_enough(lab: Lab) -> None:
    lab.write("proc/sys/fs/pipe-user-pages-soft", 16384)
    lab.write("proc/sys/fs/pipe-user-pages-hard", 0)
    facts = by_name(limits.examine(lab, lambda: (1024, 524288), {"pidfd_open": lambda: None}))
    assert not warned(facts)
    assert facts["descriptors"].text == "1024, can be raised to 524288"
    assert facts["pidfd"].text == "pidfd_open works"
    assert by_name(limits.examine(lab, lambda: (-1, -1), {}))["descriptors"].text == "no limit"


def test_few_descriptors_and_pages_hurt(lab: Lab) -> None:
    lab.write("proc/sys/fs/pipe-user-pages-soft", 64)
    lab.write("proc/sys/fs/pipe-user-pages-hard", 128)
    facts = by_name(limits.examine(lab, lambda: (256, 256), {}))
    assert warned(facts) == {"descriptors", "pipe_pages_soft", "pipe_pages_hard"}
    assert "administrator" in str(facts["descriptors"].remedy)
    facts = by_name(limits.examine(lab, lambda: (256, -1), {}))
    assert "setrlimit" in str(facts["descriptors"].remedy) and "no limit" in facts["descriptors"].text


@pytest.mark.parametrize("error", [OSError(errno.EPERM, "Operation not permitted"), AttributeError("no such call")])
def test_a_refused_call_hurts(lab: Lab, error: Exception) -> None:
    def refuse() -> None:
        raise error

    facts = by_name(limits.examine(lab, lambda: (1024, 1024), dict.fromkeys(limits.CALLS, refuse)))
    assert warned(facts) == {"memfd", "pidfd", "membarrier"}
    for call in limits.CALLS:
        assert f"since {call} is refused" in str(facts[call.partition("_")[0]].problem)


def test_every_call_that_is_tried_leaves_nothing(leaves_nothing: object) -> None:
    for attempt in limits.CALLS.values():
        attempt()


# software


def running(lab: Lab, backend: str = "native", **seams: Any) -> dict[str, Fact]:
    return by_name(software.examine(lab, backend, **{"version_of_uvloop": lambda: "0.21", **seams}))


def test_why_there_is_no_extension(lab: Lab) -> None:
    assert running(lab)["backend"].verdict == "ok"
    fact = running(lab, "fallback", why_no_extension=lambda: "ImportError: no _native")["backend"]
    assert fact.verdict == "warn" and "ImportError: no _native" in str(fact.problem)
    asked = running(Lab(lab.root, {"AIOSPIN_NO_EXTENSIONS": "1"}), "fallback")["backend"]
    assert asked.verdict == "warn" and "Unset AIOSPIN_NO_EXTENSIONS" in str(asked.remedy)
    garbled = Lab(lab.root, {"AIOSPIN_NO_EXTENSIONS": "perhaps"})
    assert running(garbled, "fallback", why_no_extension=lambda: "gone")["backend"].text == "fallback: gone"


def test_no_uvloop_hurts(lab: Lab) -> None:
    def missing() -> str:
        raise ImportError("No module named 'uvloop'")

    assert running(lab)["event_loop"].text == "uvloop 0.21, beside asyncio"
    assert running(lab, version_of_uvloop=missing)["event_loop"].verdict == "warn"


def test_a_gil_that_came_back_hurts(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(software.sysconfig, "get_config_var", lambda name: 1)
    monkeypatch.setattr(software.sys, "_is_gil_enabled", lambda: False, raising=False)
    assert running(lab)["threads"].value == "free"
    monkeypatch.setattr(software.sys, "_is_gil_enabled", lambda: True, raising=False)
    assert running(lab)["threads"].verdict == "warn"
    monkeypatch.setattr(software.sysconfig, "get_config_var", lambda name: 0)
    assert running(lab)["threads"].verdict == "plain"


def test_a_debug_build_hurts(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(software.sys, "gettotalrefcount", lambda: 0, raising=False)
    assert "debug build" in running(lab)["python"].text


# settings


def set_to(lab: Lab, found: Any = VERDICTS, **environ: str) -> dict[str, Fact]:
    return by_name(settings.examine(Lab(lab.root, environ), found))


def test_nothing_set(lab: Lab) -> None:
    facts = set_to(lab, PATH="/bin")
    assert list(facts) == ["policy"]
    assert facts["policy"].text == "balanced: watches up to a park's cost, 25% of a core"


def test_what_is_set_and_right_is_shown(lab: Lab) -> None:
    facts = set_to(
        lab,
        AIOSPIN_POLICY="pinned",
        AIOSPIN_RUNG="pause",
        AIOSPIN_DIR=str(lab.root),
        AIOSPIN_REQUIRE_EXTENSIONS="yes",
        AIOSPIN_DEVELOP="1",
    )
    assert not warned(facts)
    assert facts["policy"].text == "pinned, as AIOSPIN_POLICY says: waits never park"
    assert facts["AIOSPIN_REQUIRE_EXTENSIONS"].text == "on"
    assert facts["AIOSPIN_RUNG"].verdict == facts["AIOSPIN_DIR"].verdict == "ok"
    empty = set_to(lab, AIOSPIN_RUNG="", AIOSPIN_DIR="", AIOSPIN_POLICY="", AIOSPIN_NO_EXTENSIONS="")
    assert not warned(empty)
    assert empty["AIOSPIN_NO_EXTENSIONS"].text == "off"
    assert "only" in set_to(lab, found=(), AIOSPIN_RUNG="umwait")["AIOSPIN_RUNG"].text


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("AIOSPIN_POLICY", "fast", "not a preset"),
        ("AIOSPIN_RUNG", "sleep", "not a rung"),
        ("AIOSPIN_RUNG", "mwaitx", "CPUID reports no MONITORX"),
        ("AIOSPIN_RUNG", "wfe", "this kind of CPU has no such rung"),
        ("AIOSPIN_DIR", "/nowhere/at/all", "No such file"),
        ("AIOSPIN_DIR", "/dev/null", "is no directory"),
        ("AIOSPIN_DIR", "/proc", "cannot be used"),
        ("AIOSPIN_DIR", "/a\0b", "null"),
        ("AIOSPIN_NO_EXTENSIONS", "perhaps", "neither on"),
        ("AIOSPIN_CPU_FEATURES", "+waitpkg", "corrects what the CPU says"),
        ("AIOSPIN_POLCY", "eco", "no variable of that name"),
        ("AIOSPIN_ZZZ", "eco", "no variable of that name"),
    ],
)
def test_what_is_set_wrongly_is_said_so(lab: Lab, name: str, value: str, said: str) -> None:
    facts = set_to(lab, **{name: value})
    (wrong,) = warned(facts)
    assert wrong == ("policy" if name == "AIOSPIN_POLICY" else name)
    assert said in str(facts[wrong].problem)


def test_a_misspelt_name_is_guessed(lab: Lab) -> None:
    assert set_to(lab, AIOSPIN_POLCY="eco")["AIOSPIN_POLCY"].remedy == "Is AIOSPIN_POLICY meant?"


def test_flags_that_contradict_each_other(lab: Lab) -> None:
    facts = set_to(lab, AIOSPIN_NO_EXTENSIONS="1", AIOSPIN_REQUIRE_EXTENSIONS="1")
    assert warned(facts) == {"AIOSPIN_NO_EXTENSIONS", "AIOSPIN_REQUIRE_EXTENSIONS"}
