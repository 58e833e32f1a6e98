"""How the boots on Bochs are judged, without booting: what counts as held, and what gets another chance."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import bochs_fetch
import bochs_guest as guest
import debs
import pytest
from bochs_image import Root, rehearse
from bochs_machine import Boot
from bochs_run import held

pytestmark = pytest.mark.repository

GOOD = "EMU-BEGIN 60.2 s after the kernel\nEMU-RUN dispatch\n  chosen: umwait\nEMU-RAN dispatch: status 0\nEMU-END ok\n"
BAD = GOOD.replace("EMU-END ok", "EMU-END failed: waits, python")
HUNG = GOOD.replace("EMU-END ok\n", "")
# A kernel's message may come between two lines, and a program may say the word.
MIXED = GOOD.replace("EMU-RAN", "  it printed EMU-END ok\n[   24.1] a warning\nEMU-RAN")


def boots(*serials: str) -> tuple[bool, int]:
    """Let these boots happen in turn. Returns whether it held, and how many happened."""
    left = [Boot("arrow_lake", serial, 30.0, "a line of the log") for serial in serials]
    result = held(lambda: left.pop(0))
    return result, len(serials) - len(left)


@pytest.mark.parametrize("serial", [GOOD, MIXED])
def test_a_good_last_word_holds(serial: str) -> None:
    assert boots(serial, BAD) == (True, 1)


def test_a_failure_is_not_tried_again() -> None:
    assert boots(BAD, GOOD) == (False, 1)


def test_a_boot_without_a_last_word_has_one_more_chance() -> None:
    assert boots(HUNG, GOOD) == (True, 2)
    assert boots("", HUNG, GOOD) == (False, 2)
    assert boots(HUNG, BAD, GOOD) == (False, 2)


def test_what_the_guest_printed_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    boots(HUNG, BAD)
    shown = capsys.readouterr().out
    assert HUNG.strip() in shown and BAD.strip() in shown and "a line of the log" in shown


@pytest.mark.parametrize("cpu", guest.CPUS, ids=lambda cpu: cpu.model)
def test_a_plan_has_a_name_and_a_program_in_each_line(cpu: guest.Cpu) -> None:
    lines = [line.split("\t") for line in guest.plan(cpu, 2).splitlines()]
    names = [line[0] for line in lines]
    assert len(set(names)) == len(names) and {"dispatch under a lie", "waits", "python 2"} <= set(names)
    for _, *words in lines:
        first = next(word for word in words if "=" not in word)
        assert first in (guest.PROBE, guest.NATIVE_TESTS, guest.PYTHON)
    assert ("limit" in names) == (cpu.best == "umwait")


def test_a_program_comes_with_its_libraries(tmp_path: Path) -> None:
    program = Path(sys.executable).resolve()
    root = Root(tmp_path / "root")
    root.add_program(program, "/bin/program")
    assert (root.folder / "bin/program").exists()
    assert list(root.folder.rglob("libc.so.6")) and list(root.folder.rglob("ld-linux-x86-64.so.2"))


def test_a_rehearsal_takes_what_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And not what lies in the folder that it is started in."""
    (tmp_path / "zipfile.py").write_text("raise RuntimeError('the wrong one')")
    program = tmp_path / "elsewhere" / "program.py"
    program.parent.mkdir()
    program.write_text("import zipfile")
    monkeypatch.chdir(tmp_path)
    modules, _ = rehearse(program, [])
    assert not modules["zipfile"].startswith(str(tmp_path))


def test_a_fetch_that_fails_is_an_error(capfd: pytest.CaptureFixture[str]) -> None:
    """And no quiet pass."""
    with pytest.raises(SystemExit, match="emulation: this failed: sh -c echo no such package; exit 100"):
        debs.persist(["sh", "-c", "echo no such package; exit 100"])
    assert "no such package" in capfd.readouterr().out


def test_what_is_there_is_not_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bochs_fetch, "CACHE", tmp_path)
    monkeypatch.setattr(debs, "persist", pytest.fail)
    (tmp_path / "bochs-trixie").mkdir()
    (tmp_path / "kernel-bookworm" / "boot").mkdir(parents=True)
    (tmp_path / "kernel-bookworm" / "boot" / "vmlinuz-6.1.0").touch()
    assert bochs_fetch.bochs() == tmp_path / "bochs-trixie"
    assert bochs_fetch.kernel().name == "vmlinuz-6.1.0"


def test_what_was_fetched_halfway_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stumble(packages_of: debs.Packages, packages: list[str], target: Path) -> None:
        target.mkdir()
        shutil.copy(__file__, target)
        raise SystemExit("bochs: this failed")

    def prepare(packages_of: debs.Packages, names: list[str], folder: Path) -> None:
        folder.mkdir()

    monkeypatch.setattr(bochs_fetch, "CACHE", tmp_path)
    monkeypatch.setattr(debs.Packages, "__init__", prepare)
    monkeypatch.setattr(debs.Packages, "unpack", stumble)
    with pytest.raises(SystemExit):
        bochs_fetch.bochs()
    assert not list(tmp_path.iterdir())
