"""check_shm_free_space: what a file system has no room for is refused, and what memory has no room for is said."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from aiospin.compat.vllm import _memory
from aiospin.compat.vllm._memory import check_shm_free_space

MIB = 1 << 20


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A root directory with 1 GiB of memory, 512 MiB of it free, and a control group of 128 MiB that uses 100."""
    root = tmp_path / "machine"
    group = "sys/fs/cgroup/job"
    for path, text in {
        "proc/meminfo": "MemTotal: 1048576 kB\nMemAvailable: 524288 kB\n",
        "proc/self/cgroup": "0::/job\n",
        "proc/self/mountinfo": "30 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
        f"{group}/memory.max": f"{128 * MIB}\n",
        f"{group}/memory.current": f"{100 * MIB}\n",
    }.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    monkeypatch.setattr(_memory, "_root", root)
    monkeypatch.setattr(_memory, "_warned", set())
    yield root


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The file system of every directory: 1000 blocks of 4 KiB, of which this user may have 50."""
    system = SimpleNamespace(f_blocks=1000, f_bfree=100, f_bavail=50, f_frsize=4096)
    monkeypatch.setattr(os, "statvfs", lambda path: system)
    return system


def test_what_fits_passes_in_silence(disk: SimpleNamespace, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for size in (0, 1, 50 * 4096):
        check_shm_free_space(size, str(tmp_path))
    assert not caplog.records


def test_what_does_not_fit_is_refused_with_both_numbers(disk: SimpleNamespace, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError) as caught:
        check_shm_free_space(50 * 4096 + 1, str(tmp_path), allocation_name="tables of the model")
    for said in ("tables of the model", "204801", "204800", str(tmp_path), "--shm-size"):
        assert said in str(caught.value)


def test_the_name_goes_by_keyword_alone(tmp_path: Path) -> None:
    with pytest.raises(TypeError):
        check_shm_free_space(1, str(tmp_path), "tables")  # type: ignore[misc]


def test_a_file_system_without_a_limit_has_room(disk: SimpleNamespace, tmp_path: Path) -> None:
    disk.f_blocks = disk.f_bavail = 0  # a tmpfs of size=0
    check_shm_free_space(1 << 40, str(tmp_path))


@pytest.mark.parametrize("name", ["missing", "file"])
def test_where_there_is_no_directory_no_file_system_is_asked(disk: SimpleNamespace, tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    check_shm_free_space(1 << 40, str(tmp_path / name))


def test_a_directory_that_goes_meanwhile_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(path: str) -> None:
        raise FileNotFoundError(path)

    monkeypatch.setattr(os, "statvfs", gone)
    check_shm_free_space(1 << 40, str(tmp_path))


def test_low_headroom_is_said_once_and_not_refused(
    disk: SimpleNamespace, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk.f_blocks = 0
    with caplog.at_level(logging.WARNING, "aiospin"):
        for _ in range(3):
            check_shm_free_space(28 * MIB, str(tmp_path))
        assert not caplog.records
        for _ in range(3):
            check_shm_free_space(28 * MIB + 1, str(tmp_path), allocation_name="tables")
    (record,) = caplog.records
    for said in ("tables", str(28 * MIB + 1), str(28 * MIB), "job"):
        assert said in record.message
    assert not record.args  # formatted at once: nothing is kept alive


def test_each_limit_is_said(
    disk: SimpleNamespace, machine: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk.f_blocks = 0
    with caplog.at_level(logging.WARNING, "aiospin"):
        check_shm_free_space(1 << 30, str(tmp_path))
        (machine / "proc/meminfo").write_text("MemTotal: 1048576 kB\nMemAvailable: 1024 kB\n")
        check_shm_free_space(1 << 30, str(tmp_path))
    assert ["job" in record.message for record in caplog.records] == [True, False]
    assert "the machine's memory" in caplog.records[1].message


def test_the_usual_place(disk: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(os.path, "isdir", lambda path: not asked.append(path))
    with pytest.raises(RuntimeError, match="/dev/shm"):
        check_shm_free_space(1 << 40)
    assert asked == ["/dev/shm"]


@pytest.mark.parametrize("size", [1.5, "1", None])
def test_what_is_no_number_of_bytes_is_named(size: Any) -> None:
    with pytest.raises(TypeError, match=f"required_bytes must be a whole number of bytes, not {size!r}"):
        check_shm_free_space(size)


def test_a_negative_number_is_named() -> None:
    with pytest.raises(ValueError, match="required_bytes must be 0 or more, not -1"):
        check_shm_free_space(-1)
