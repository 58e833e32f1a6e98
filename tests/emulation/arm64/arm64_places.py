"""Where the arm64 evidence keeps what it fetches and makes, and what it calls the target.

Guarantee: everything lies under build/emulation/arm64, which may be deleted at any time.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).resolve().parent
ROOT: Final = HERE.parent.parent.parent
MADE: Final = ROOT / "build" / "emulation" / "arm64"

EMULATOR: Final = MADE / "emulator"  # QEMU, for this machine
TARGET: Final = MADE / "target"  # Python and what it is linked with, for arm64
KERNEL: Final = MADE / "kernel"  # a kernel for arm64
SITE: Final = MADE / "site"  # Python packages for arm64
TREE: Final = MADE / "tree"  # the package with its extension for arm64
PYTHON: Final = MADE / "python"  # a program: arm64's Python on this machine

TRIPLET: Final = "aarch64-linux-gnu"
CXX: Final = f"{TRIPLET}-g++"
OBJDUMP: Final = f"{TRIPLET}-objdump"

EXTENSION: Final = TREE / "aiospin" / f"_native.cpython-311-{TRIPLET}.so"
UNIT_TESTS: Final = MADE / "native-tests"
INIT: Final = MADE / "init"  # the program that the booted kernel runs
