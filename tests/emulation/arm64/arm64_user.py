"""Run single arm64 programs on this machine, by QEMU's user-mode emulation.

Guarantee: nothing is registered with the kernel: child processes come to be emulated because `sys.executable` is a
script of this machine that calls QEMU.
Assumption: QEMU makes up the hwcaps, so the features are told by AIOSPIN_CPU_FEATURES; its WFE and WFET return at once.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping

from arm64_places import EMULATOR, PYTHON, SITE, TARGET, TREE

FEATURES = "+wfxt,+evtstrm,+sb"
RUNGS = ("wfet", "wfe", "sb", "isb", "yield")
# Addresses are then the same in each run, which lets one run say where the next must look.
RESERVED = "0x7f00000000"


def emulator(program: str, *arguments: str) -> list[str]:
    """The command of an unpacked QEMU program, with the libraries unpacked beside it and nothing in the environment."""
    folders = [EMULATOR / "lib/x86_64-linux-gnu", EMULATOR / "usr/lib/x86_64-linux-gnu"]
    loader = folders[0] / "ld-linux-x86-64.so.2"
    path = ":".join(str(folder) for folder in folders)
    return [str(loader), "--library-path", path, str(EMULATOR / "usr/bin" / program), *arguments]


def user(*arguments: str) -> list[str]:
    """The command of user-mode emulation, to which a program is to be added."""
    return emulator("qemu-aarch64", "-cpu", "max", "-R", RESERVED, "-L", str(TARGET), *arguments)


def environment(rung: str, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a Python whose waits idle with that rung, and with nothing of this machine's Python in it."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AIOSPIN_", "PYTHON", "QEMU_"))}
    ours = {
        "PYTHONPATH": f"{TREE}:{SITE}",
        "AIOSPIN_REQUIRE_EXTENSIONS": "1",
        "AIOSPIN_CPU_FEATURES": FEATURES,
        "AIOSPIN_RUNG": rung,
    }
    return {**kept, **ours, **(extra or {})}


def python() -> None:
    """Write the program that Python takes for itself."""
    interpreter = shlex.quote(str(TARGET / "usr/bin/python3.11"))
    command = shlex.join(user("-0"))
    # QEMU tells the interpreter this script's name, and it sys.executable; PYTHONHOME, where its own library is.
    text = f'#!/bin/sh\nPYTHONHOME={shlex.quote(str(TARGET / "usr"))} exec {command} "$0" {interpreter} "$@"\n'
    PYTHON.write_text(text)
    PYTHON.chmod(0o755)
