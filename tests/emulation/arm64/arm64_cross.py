"""Build for arm64 on this machine: the extension in a copy of the package, the unit tests, and the boot's program.

Guarantee: every native/**/*.cpp takes part, and a warning is an error. What is up to date is not compiled again.
Assumption: arm64_fetch.everything() has run. tests/native/build.py knows how to compile, and is called for it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pybind11
from arm64_places import CXX, EXTENSION, INIT, MADE, ROOT, TARGET, TREE, TRIPLET, UNIT_TESTS

sys.path.insert(0, str(ROOT / "tests" / "native"))

import build

FLAGS = ["-std=c++20", "-pthread", "-Wall", "-Wextra", "-Werror", "-Inative"]
# One set of flags for the extension and the unit tests, so that they share what is not theirs alone.
PYTHON_FLAGS = [
    *("-fPIC", "-fvisibility=hidden", "-DNDEBUG"),
    *(f"-isystem{TARGET}/usr/include/{folder}" for folder in ("python3.11", f"{TRIPLET}/python3.11", ".")),
    f"-isystem{pybind11.get_include()}",
]


def link(program: Path, sources: Sequence[Path], flags: Sequence[str], linking: Sequence[str] = ()) -> None:
    """Compile `sources`, relative to the root, and link `program`. Raises SystemExit when the compiler complains."""
    folder = MADE / "objects" / ("hosted" if flags else "bare")
    folder.mkdir(parents=True, exist_ok=True)
    print(f"arm64: building {program.name}", flush=True)

    def compile_one(source: Path) -> tuple[Path, bool]:
        # The library as it is installed. At -O3 GCC 12 warns of overlaps in strings where there are none.
        level = "-O2" if source.parts[0] == "tests" else "-O3"
        return build.compile_one([CXX], [level, *FLAGS, *flags], source, folder)

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        compiled = list(pool.map(compile_one, sources))
    command = [CXX, *FLAGS, *flags, *linking, *(str(target) for target, _ in compiled), "-o", str(program)]
    if not all(fresh for _, fresh in compiled) or subprocess.run(command, cwd=ROOT, check=False).returncode != 0:
        raise SystemExit(f"arm64: {program.name} could not be built")


def package() -> None:
    """Put the package with its extension for arm64 into TREE."""
    shutil.rmtree(TREE, ignore_errors=True)
    leave = shutil.ignore_patterns("*.so", "__pycache__")
    shutil.copytree(ROOT / "aiospin", TREE / "aiospin", ignore=leave)
    link(EXTENSION, relative("native/**/*.cpp"), PYTHON_FLAGS, ["-shared"])


def unit_tests(folders: Sequence[str]) -> None:
    """Build the C++ unit tests of these folders of tests/native ("*" for all).

    Without those that step a child from instruction to instruction: QEMU has no ptrace to offer.
    """
    library = [path for path in relative("native/**/*.cpp") if "bindings" not in path.parts]
    tests = [path for folder in folders for path in relative(f"tests/native/{folder}/*.cpp")]
    stepping = re.compile(r'#include ".*(stepper|race)\.h"')
    tests = [path for path in tests if not stepping.search((ROOT / path).read_text(encoding="utf-8"))]
    link(UNIT_TESTS, [*library, Path("tests/native/main.cpp"), *tests], PYTHON_FLAGS)


def init() -> None:
    """Build the program that a kernel runs as its first, alone in its file system."""
    sources = [*relative("native/cpu/*.cpp"), Path("native/platform/clock.cpp"), *relative("tests/**/arm64_init.cpp")]
    link(INIT, sources, [], ["-static"])


def relative(pattern: str) -> list[Path]:
    return sorted(path.relative_to(ROOT) for path in ROOT.glob(pattern))
