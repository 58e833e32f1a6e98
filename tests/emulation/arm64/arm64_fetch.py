"""Fetch what the arm64 evidence runs on, and install none of it: QEMU, an arm64 Python with its packages, a kernel.

Guarantee: packages are unpacked under build/emulation/arm64 and the system's package database is left as it is; only
the cross compiler is installed, where it is missing. What has been fetched is not fetched again, and a fetch that was
cut short is.
Assumption: Debian bookworm as root; its own sources name the mirror. QEMU is that of bookworm-backports: the one of
bookworm knows neither WFET nor an event stream of user programs.
"""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from arm64_places import CXX, EMULATOR, KERNEL, OBJDUMP, ROOT, SITE, TARGET, TRIPLET

sys.path.insert(0, str(ROOT / "tests" / "emulation"))

from debs import Packages, install, persist

SUITE = "bookworm"
BACKPORTS = f"{SUITE}-backports"

# What the tests of waiting import, as pyproject.toml asks for it.
PACKAGES = ("hypothesis", "msgspec", "numpy", "packaging", "pytest", "pytest-asyncio", "pytest-timeout", "uvloop")


def once(folder: Path, wanted: str) -> bool:
    """Return whether `folder` holds `wanted` already; otherwise make it anew, empty."""
    if folder.with_suffix(".fetched").exists() and folder.with_suffix(".fetched").read_text() == wanted:
        return True
    folder.with_suffix(".fetched").unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return False


def complete(folder: Path, wanted: str) -> None:
    """Note that `folder` holds `wanted` from now on."""
    folder.with_suffix(".fetched").write_text(wanted)


def unpacked(folder: Path, packages: Sequence[str], architecture: str, suites: Sequence[str] = (SUITE,)) -> None:
    """Unpack `packages` of the last of `suites`, and all that they depend on, into `folder`."""
    wanted = " ".join([architecture, *suites, *packages])
    if once(folder, wanted):
        return
    print(f"arm64: fetching {wanted}", flush=True)
    with tempfile.TemporaryDirectory() as name:
        Packages(list(suites), Path(name) / "apt", architecture).unpack(packages, folder)
    complete(folder, wanted)


def requirements() -> list[str]:
    """Return what pyproject.toml asks for of PACKAGES."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    found = []
    for package in PACKAGES:
        line = re.search(rf'"({package}(?:>=[^";]*))', text)
        assert line is not None, package
        found.append(line[1])
    return found


def site() -> None:
    """Have pip put the packages for arm64's Python 3.11 into SITE."""
    wanted = " ".join(requirements())
    if once(SITE, wanted):
        return
    print(f"arm64: fetching {wanted}", flush=True)
    tags = [text for number in (17, 28) for text in ("--platform", f"manylinux_2_{number}_aarch64")]
    tags += ["--platform", "manylinux2014_aarch64", "--python-version", "3.11", "--implementation", "cp"]
    install_here = [sys.executable, "-m", "pip", "install", "-q", "--only-binary=:all:", "--target", str(SITE)]
    persist([*install_here, *tags, *requirements()])
    complete(SITE, wanted)


def cross_compiler() -> None:
    """Install it where it is missing."""
    if shutil.which(CXX) and shutil.which(OBJDUMP):
        return
    install([f"g++-{TRIPLET}"])


def everything() -> None:
    """Fetch all of it."""
    cross_compiler()
    unpacked(EMULATOR, ["qemu-user", "qemu-system-arm"], "amd64", [SUITE, BACKPORTS])
    unpacked(TARGET, ["python3.11", "libpython3.11-dev", "libstdc++6"], "arm64")
    unpacked(KERNEL, ["linux-image-cloud-arm64"], "arm64")
    site()
