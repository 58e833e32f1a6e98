"""No machine makes the survey fail: every file that it reads, absent, empty, unreadable, or full of something else."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest
from machines import V2, Lab, assert_whole, by_name

from aiospin.doctor import machine as machine_module
from aiospin.doctor.machine import LONGEST, Machine, whole
from aiospin.doctor.meters import find_meter
from aiospin.doctor.report import WIDTH, report
from aiospin.doctor.survey import survey

FILES = """
    dev/shm proc/cmdline proc/cpuinfo proc/meminfo proc/self/cgroup proc/self/mountinfo proc/self/ns/pid proc/stat
    proc/sys/fs/pipe-user-pages-hard proc/sys/fs/pipe-user-pages-soft proc/sys/kernel/yama/ptrace_scope
    sys/class/dmi/id/product_name sys/class/dmi/id/sys_vendor sys/class/hwmon/hwmon0/energy1_input
    sys/class/hwmon/hwmon0/name sys/class/hwmon/hwmon0/power1_input sys/class/hwmon/hwmon0/power1_label
    sys/class/powercap/intel-rapl:0/energy_uj sys/class/powercap/intel-rapl:0/max_energy_range_uj
    sys/class/powercap/intel-rapl:0/name sys/devices/system/clocksource/clocksource0/current_clocksource
    sys/devices/system/cpu/cpu0/cpuidle/state0/disable sys/devices/system/cpu/cpu0/cpuidle/state0/latency
    sys/devices/system/cpu/cpu0/cpuidle/state0/name sys/devices/system/cpu/cpuidle/current_driver
    sys/devices/system/cpu/cpuidle/current_governor sys/devices/system/cpu/umwait_control/enable_c02
    sys/devices/system/cpu/umwait_control/max_time sys/fs/cgroup/box/cpu.max sys/fs/cgroup/box/cpu.stat
    sys/fs/cgroup/box/memory.current sys/fs/cgroup/box/memory.max sys/hypervisor/type
""".split()

NUMBERS_WITHOUT_END = "9" * 5000
CONTENTS: dict[str, bytes] = {
    "empty": b"",
    "newlines": b"\n\n\n",
    "a word": b"what?\n",
    "negative": b"-5\n",
    "a huge number": b"9" * 400,
    "numbers without end": f"cpu {NUMBERS_WITHOUT_END} {NUMBERS_WITHOUT_END}\n{NUMBERS_WITHOUT_END} 1\n".encode(),
    "no text": bytes(range(256)) * 4,
    "terminal codes": b"\x1b[2J\x07name: \x9b31m\n",
    "fields without values": b"cpu\nflags\nmodel name\nMemTotal:\nMemAvailable: kB\nnr_periods\n0::\n:\n - \n",
    "a division by nothing": b"100 0\n",
    "other digits": "٣٣٣ ٣".encode(),
    "a NUL in a path": V2.encode().replace(b"/sys/fs/cgroup", rb"/sys/a\000b") + b"\n0::/b\0x\n",
}


def lay_out(root: Path, content: bytes | None) -> None:
    for path in FILES:
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        if content is None:
            place.mkdir()
        else:
            place.write_bytes(content)


def assert_survives(lab: Machine) -> None:
    find_meter(lab)
    sections = survey(lab)
    for section in sections:
        by_name(section.facts)
        for fact in section.facts:
            assert_whole(fact)
    text = report(sections, 0)
    assert all(len(line) <= WIDTH and line.isprintable() for line in text.splitlines()), text


def test_a_machine_without_any_of_these_files(tmp_path: Path) -> None:
    assert_survives(Lab(tmp_path))


def test_directories_in_the_place_of_all_files(tmp_path: Path) -> None:
    lay_out(tmp_path, None)
    assert_survives(Lab(tmp_path))


@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS)
def test_all_files_with_something_else_in_them(tmp_path: Path, content: bytes) -> None:
    lay_out(tmp_path, content)
    assert_survives(Lab(tmp_path))


@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS)
def test_something_else_in_a_control_group(tmp_path: Path, content: bytes) -> None:
    """Which is only read when what leads to it is as it should be."""
    lay_out(tmp_path, content)
    lab = Lab(tmp_path)
    lab.write("proc/self/mountinfo", V2)
    lab.write("proc/self/cgroup", "0::/box")
    assert_survives(lab)


@pytest.mark.parametrize("seed", range(20))
def test_files_of_random_content(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    lay_out(tmp_path, b"")
    for path in FILES:
        content = chance.choice([*CONTENTS.values(), V2.encode(), b"0::/box", b"1", chance.randbytes(64)])
        (tmp_path / path).write_bytes(content)
    assert_survives(Lab(tmp_path))


def test_a_machine_that_lets_nothing_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lay_out(tmp_path, b"1")

    def refuse(*args: Any, **options: Any) -> Any:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(machine_module, "open", refuse, raising=False)
    assert_survives(Lab(tmp_path))
    assert Lab(tmp_path).why_unread("proc/stat") == f"/proc/stat may not be read by uid {os.geteuid()}"


@pytest.mark.parametrize("value", ["", "\udcff", "a\0b", "x" * 300, "\x1b[2J", "1", "٣"], ids=ascii)
def test_any_value_of_any_variable(tmp_path: Path, value: str) -> None:
    names = "POLICY RUNG DIR NO_EXTENSIONS REQUIRE_EXTENSIONS CPU_FEATURES DEVELOP BUILD_JOBS X \x1b[2J " + "Y" * 99
    assert_survives(Lab(tmp_path, {f"AIOSPIN_{name}": value for name in names.split(" ")}))


# what reading promises


def test_why_a_file_cannot_be_read(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.write("text", "words")
    (tmp_path / "folder").mkdir()
    assert lab.why_unread("text") == "/text holds no number"
    assert lab.why_unread("none") == "there is no /none"
    assert lab.why_unread("folder") == "/folder: Is a directory"


def test_a_long_file_is_read_in_part(tmp_path: Path) -> None:
    (tmp_path / "long").write_bytes(b"x" * (LONGEST + 1))
    assert len(Machine(tmp_path).text("long") or "") == LONGEST


@pytest.mark.parametrize(
    ("text", "number"),
    [("12", 12), ("-3", -3), ("", None), (None, None), ("1.5", None), ("9" * 20, int("9" * 20)), ("9" * 21, None)]
    + [(text, None) for text in ("--1", "٣", "0x10", "1e3", "²", "1_0", "+1")],
)
def test_what_is_a_whole_number(text: str | None, number: int | None) -> None:
    assert whole(text) == number


def test_the_last_mount_covers_the_others(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.write("proc/self/mountinfo", "1 0 0:1 / /dev/shm rw - ext4 a rw\n2 0 0:2 / /dev/shm ro - tmpfs b rw,size=1k")
    assert lab.mount("/dev/shm") == ("tmpfs", {"ro", "rw", "size=1k"})
    assert lab.mount("/nothing") is None
