"""The patch that waitemu.cpp relies on changes instructions that wait, and nothing that looks like one."""

from __future__ import annotations

import platform
import subprocess
from pathlib import Path

import pytest
from patch import patched

pytestmark = pytest.mark.repository


def built(assembly: str, folder: Path) -> Path:
    """Assemble and link it as a library of its own."""
    program = folder / "program.so"
    command = ["g++", "-x", "assembler", "-", "-shared", "-nostdlib", "-o", str(program)]
    subprocess.run(command, input=f".globl f\nf:\n{assembly}\n", text=True, check=True)
    return program


if platform.machine() == "x86_64":
    WAITS = {
        "umonitor": ".byte 0xf3, 0x0f, 0xae, 0xf0",
        "umwait": ".byte 0xf2, 0x0f, 0xae, 0xf1",
        "tpause": ".byte 0x66, 0x0f, 0xae, 0xf1",
        "monitorx": ".byte 0x0f, 0x01, 0xfa",
        "mwaitx": ".byte 0x0f, 0x01, 0xfb",
    }
    # The bytes of monitorx and of umwait within a constant, and as data.
    ALIKE = "movabs $0x9090909090fa010f, %rax\nmovabs $0x90909090f1ae0ff2, %rax\nret\n"
    DATA = ".section .rodata\n.byte 0x0f, 0x01, 0xfa\n.byte 0xf3, 0x0f, 0xae, 0xf0\n"

    def test_each_wait_is_changed_by_one_byte_and_nothing_else(tmp_path: Path) -> None:
        program, copy = built("\n".join(WAITS.values()) + f"\n{ALIKE}{DATA}", tmp_path), tmp_path / "copy.so"
        assert patched(program, copy) == dict.fromkeys(WAITS, 1)
        changes = [(old, new) for old, new in zip(program.read_bytes(), copy.read_bytes(), strict=True) if old != new]
        assert changes == [(0xAE, 0x0B)] * 3 + [(0x01, 0x0B)] * 2

    def test_a_trap_that_would_be_taken_for_a_wait_is_refused(tmp_path: Path) -> None:
        program = built("ud2\ncli\n", tmp_path)
        with pytest.raises(ValueError, match="would be taken for a wait"):
            patched(program, tmp_path / "copy.so")

    def test_an_encoding_that_the_handler_cannot_read_is_refused(tmp_path: Path) -> None:
        program = built(".byte 0x67, 0xf3, 0x0f, 0xae, 0xf0\n", tmp_path)
        with pytest.raises(ValueError, match="67 f3 0f ae f0"):
            patched(program, tmp_path / "copy.so")
