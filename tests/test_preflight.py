"""Sizes, limits of machines, control groups and file systems, and CPUs, on machines laid out in a directory."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiospin import _cgroup, _layout, _preflight
from aiospin._errors import SegmentTooLarge

MIB = 1 << 20
GIB = 1 << 30


class Machine:
    """A root directory with just the files that the preflight reads."""

    def __init__(self, root: Path, memory: int = 64 * GIB, available: int = 32 * GIB) -> None:
        self.root = root
        self.write("proc/meminfo", f"MemTotal: {memory // 1024} kB\nMemAvailable: {available // 1024} kB\n")

    def write(self, path: str, text: object) -> None:
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(f"{text}\n")

    def belongs_to(self, *lines: str) -> None:
        self.write("proc/self/cgroup", "\n".join(lines))

    def mounts(self, *lines: str) -> None:
        self.write("proc/self/mountinfo", "\n".join(lines))


V2 = "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate"
V1_MEMORY = "33 32 0:29 / /sys/fs/cgroup/memory rw shared:14 - cgroup cgroup rw,memory"
V1_CPU = "34 32 0:30 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.fixture(autouse=True)
def _nothing_warned_yet() -> Iterator[None]:
    _preflight._warned.clear()
    yield
    _preflight._warned.clear()


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (1, 1),
        ("4096", 4096),
        ("16 MiB", 16 * MIB),
        ("16MIB", 16 * MIB),
        ("  1.5 GiB ", GIB + GIB // 2),
        ("64k", 65536),
        ("2M", 2 * MIB),
        ("1 MB", 1_000_000),
        ("0.3 kB", 300),
        ("7 B", 7),
        ("1T", 1 << 40),
    ],
)
def test_sizes_are_read(size: str | int, expected: int) -> None:
    assert _preflight.parse_size(size) == expected


@pytest.mark.parametrize(
    "size", ["", "MiB", "16 XiB", "1e6", "-1", "0", "0 MiB", "0.1", "nan", "inf", "1 2", "16 MiBs", "1,5 GiB", 0, -4096]
)
def test_a_size_that_is_none_is_named(size: str | int) -> None:
    with pytest.raises(ValueError) as caught:
        _preflight.parse_size(size)
    assert repr(size) in str(caught.value)


@pytest.mark.parametrize("size", [None, 1.5, True, b"16 MiB", [], float("nan")])
def test_a_size_of_another_type_is_named(size: Any) -> None:
    with pytest.raises(TypeError) as caught:
        _preflight.parse_size(size)
    assert repr(size) in str(caught.value)


@given(st.text(max_size=20))
def test_any_text_is_a_positive_size_or_a_value_error(text: str) -> None:
    try:
        assert _preflight.parse_size(text) > 0
    except ValueError:
        return


@pytest.mark.parametrize(
    ("readers", "kind"), [(-1, ValueError), (1025, ValueError), ("2", TypeError), (True, TypeError)]
)
def test_readers_out_of_range_are_named(readers: Any, kind: type[Exception]) -> None:
    with pytest.raises(kind, match=str(readers)):
        _preflight.check_capacity(65536, readers)


def test_capacity_is_rounded_up(machine: Machine) -> None:
    for asked, rounded in ((1, 65536), (65536, 65536), (65537, 131072), ("1 MB", 1048576)):
        assert _preflight.check_capacity(asked, 0, root=machine.root) == rounded


def test_more_than_the_machine_has_is_refused(machine: Machine) -> None:
    with pytest.raises(SegmentTooLarge) as caught:
        _preflight.check_capacity("64 GiB", 1, root=machine.root)
    assert caught.value.size == _layout.segment_bytes(1, 64 * GIB)
    assert caught.value.limit == 64 * GIB
    assert str(64 * GIB) in str(caught.value) and str(caught.value.size) in str(caught.value)


def test_version_2_nested_the_tightest_ancestor_counts(machine: Machine) -> None:
    machine.mounts(V2)
    machine.belongs_to("0::/kubepods/pod1/container")
    machine.write("sys/fs/cgroup/kubepods/memory.max", 8 * GIB)
    machine.write("sys/fs/cgroup/kubepods/pod1/memory.max", 512 * MIB)
    machine.write("sys/fs/cgroup/kubepods/pod1/container/memory.max", "max")
    machine.write("sys/fs/cgroup/kubepods/pod1/memory.current", 0)
    _preflight.check_capacity("500 MiB", 1, root=machine.root)
    with pytest.raises(SegmentTooLarge, match="pod1") as caught:
        _preflight.check_capacity("512 MiB", 1, root=machine.root)
    assert caught.value.limit == 512 * MIB


def test_version_1_nested(machine: Machine) -> None:
    machine.mounts(V1_MEMORY)
    machine.belongs_to("4:memory:/docker/abc", "3:cpu,cpuacct:/docker/abc", "0::/")
    machine.write("sys/fs/cgroup/memory/memory.limit_in_bytes", 9223372036854771712)
    machine.write("sys/fs/cgroup/memory/docker/memory.limit_in_bytes", 256 * MIB)
    machine.write("sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", 9223372036854771712)
    with pytest.raises(SegmentTooLarge) as caught:
        _preflight.check_capacity("1 GiB", 1, root=machine.root)
    assert caught.value.limit == 256 * MIB


def test_version_1_mounted_from_the_containers_own_group(machine: Machine) -> None:
    machine.mounts("33 32 0:29 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory")
    machine.belongs_to("4:memory:/docker/abc/inner")
    machine.write("sys/fs/cgroup/memory/memory.limit_in_bytes", 128 * MIB)
    machine.write("sys/fs/cgroup/memory/inner/memory.limit_in_bytes", 64 * MIB)
    assert [group.limit for group in _cgroup.memory_groups(machine.root)] == [64 * MIB, 128 * MIB]


@pytest.mark.parametrize("path", ["/../outside", "/elsewhere"])
def test_a_group_outside_of_the_mount_is_seen_from_its_top(machine: Machine, path: str) -> None:
    machine.mounts("30 24 0:26 /docker/abc /sys/fs/cgroup rw - cgroup2 cgroup rw")
    machine.belongs_to(f"0::{path}")
    machine.write("sys/fs/cgroup/memory.max", 128 * MIB)
    assert [group.limit for group in _cgroup.memory_groups(machine.root)] == [128 * MIB]


def test_a_mount_point_with_a_space_is_found(machine: Machine) -> None:
    machine.mounts("30 24 0:26 / /sys/fs/c\\040group rw - cgroup2 cgroup rw")
    machine.belongs_to("0::/")
    machine.write("sys/fs/c group/memory.max", 128 * MIB)
    assert [group.limit for group in _cgroup.memory_groups(machine.root)] == [128 * MIB]


@pytest.mark.parametrize(
    ("cgroup", "mountinfo"),
    [
        ("", ""),
        ("garbage", "garbage"),
        ("0::", "1 - cgroup2"),
        (":::", "a b c d e - cgroup c rw,memory"),
        ("4:memory", V2),
    ],
)
def test_what_cannot_be_understood_is_no_limit(machine: Machine, cgroup: str, mountinfo: str) -> None:
    machine.belongs_to(cgroup)
    machine.mounts(mountinfo)
    machine.write("sys/fs/cgroup/memory.max", "a lot")
    assert _cgroup.memory_groups(machine.root) == []
    assert _cgroup.cpu_quota(machine.root) is None


def test_a_machine_that_says_nothing_refuses_nothing(tmp_path: Path) -> None:
    assert _preflight.check_capacity("1 TiB", 1, root=tmp_path) == 1 << 40
    with pytest.raises(SegmentTooLarge, match="the largest file"):
        _preflight.check_capacity(1 << 64, 1, root=tmp_path)


def test_low_headroom_warns_once_and_goes_on(machine: Machine, caplog: pytest.LogCaptureFixture) -> None:
    machine.mounts(V2)
    machine.belongs_to("0::/job")
    machine.write("sys/fs/cgroup/job/memory.max", 512 * MIB)
    machine.write("sys/fs/cgroup/job/memory.current", 500 * MIB)
    with caplog.at_level(logging.WARNING, "aiospin"):
        for _ in range(3):
            assert _preflight.check_capacity("64 MiB", 1, root=machine.root) == 64 * MIB
    (record,) = caplog.records
    assert str(12 * MIB) in record.message and "job" in record.message
    assert not record.args


def test_usage_is_read_each_time_and_the_limit_once(machine: Machine) -> None:
    machine.mounts(V2)
    machine.belongs_to("0::/job")
    machine.write("sys/fs/cgroup/job/memory.max", 512 * MIB)
    machine.write("sys/fs/cgroup/job/memory.current", 0)
    assert _preflight.room(None, root=machine.root).bytes == 512 * MIB
    machine.write("sys/fs/cgroup/job/memory.max", 1)
    machine.write("sys/fs/cgroup/job/memory.current", 100 * MIB)
    assert _preflight.room(None, root=machine.root).bytes == 412 * MIB
    machine.write("sys/fs/cgroup/job/memory.current", 600 * MIB)
    assert _preflight.room(None, root=machine.root).bytes == 0


def test_a_named_segment_must_fit_its_file_system(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked = []

    def statvfs(path: os.PathLike[str]) -> SimpleNamespace:
        if not os.path.exists(path):
            raise FileNotFoundError(path)
        asked.append(os.fspath(path))
        return SimpleNamespace(f_blocks=64, f_bavail=2, f_frsize=MIB)

    monkeypatch.setattr(os, "statvfs", statvfs)
    place = tmp_path / "not" / "yet"
    with pytest.raises(SegmentTooLarge, match="file system") as caught:
        _preflight.check_capacity("64 MiB", 1, place, root=machine.root)
    assert caught.value.limit == 64 * MIB
    assert _preflight.check_capacity("32 MiB", 1, place, root=machine.root) == 32 * MIB
    assert set(asked) == {str(tmp_path)}
    assert len(caplog.records) == 1
    assert _preflight.check_capacity("1 GiB", 1, root=machine.root) == GIB  # an anonymous one does not lie there


def test_a_directory_that_goes_while_it_is_looked_at_is_none(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The directory of a user's named segments goes with the last of them."""
    statvfs = os.statvfs
    gone: list[str] = []

    def vanish(path: os.PathLike[str]) -> os.statvfs_result:
        if os.fspath(path) == str(tmp_path / "segments"):
            gone.append(os.fspath(path))
            raise FileNotFoundError(path)
        return statvfs(path)

    monkeypatch.setattr(os, "statvfs", vanish)
    (tmp_path / "segments").mkdir()
    assert _preflight.check_capacity("64 KiB", 1, tmp_path / "segments", root=machine.root) == 65536
    assert gone


def test_a_file_system_without_a_size_has_no_limit(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_blocks=0, f_bavail=0, f_frsize=4096))
    assert _preflight.check_capacity("1 GiB", 1, "/dev/shm", root=machine.root) == GIB


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"sys/fs/cgroup/a/cpu.max": "max 100000"}, None),
        ({"sys/fs/cgroup/a/cpu.max": "150000 100000"}, 2),
        ({"sys/fs/cgroup/a/cpu.max": "1000 100000"}, 1),
        ({"sys/fs/cgroup/a/cpu.max": "400000 100000", "sys/fs/cgroup/cpu.max": "300000 100000"}, 3),
        (
            {"sys/fs/cgroup/cpu,cpuacct/b/cpu.cfs_quota_us": "-1", "sys/fs/cgroup/cpu,cpuacct/b/cpu.cfs_period_us": 1},
            None,
        ),
        ({"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": 5, "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": 2}, 3),
    ],
)
def test_cpu_quotas_are_rounded_up(machine: Machine, files: dict[str, object], expected: int | None) -> None:
    machine.mounts(V2, V1_CPU)
    machine.belongs_to("0::/a", "3:cpu,cpuacct:/b")
    for path, text in files.items():
        machine.write(path, text)
    assert _cgroup.cpu_quota(machine.root) == expected


def test_usable_cpus_is_the_lesser_of_affinity_and_quota(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    assert _preflight.usable_cpus(root=machine.root) == 8
    machine.mounts(V2)
    machine.belongs_to("0::/")
    machine.write("sys/fs/cgroup/cpu.max", "250000 100000")
    assert _preflight.usable_cpus(root=machine.root) == 3


def test_this_machine_answers() -> None:
    assert _preflight.usable_cpus() >= 1
    assert _preflight.check_capacity("1 MiB", 1, "/dev/shm") == MIB
    assert _preflight.room(None).bytes > 0
