"""What a boot needs and Debian has: Bochs and a small kernel, unpacked beside the build, and a few tools, installed.

Guarantee: packages of Bochs and of the kernel are only unpacked (debs.py), under build/emulation, where later runs find
them. What was fetched halfway is not taken for whole.
Assumption: Debian, with root where a tool is missing. Bochs is 3.0, of trixie: 2.7 has no CPU model with these
instructions, and 3.1 does not boot here. The kernel is bookworm's for clouds, the smallest there is.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests" / "emulation"))

from debs import Packages, install  # noqa: E402

CACHE = ROOT / "build" / "emulation"

# What must be there, and the package that brings it.
TOOLS = {
    "/usr/lib/ISOLINUX/isolinux.bin": "isolinux",
    "/usr/lib/syslinux/modules/bios/ldlinux.c32": "syslinux-common",
    "/usr/bin/xorriso": "xorriso",
    "/usr/bin/cpio": "cpio",
    "/usr/bin/lz4": "lz4",
    "/usr/bin/script": "bsdutils",
}
BOCHS = ("trixie", ["bochs", "bochs-term", "bochsbios", "vgabios"])
KERNEL = ("bookworm", "linux-image-cloud-amd64")


def tools() -> None:
    """Install whatever of TOOLS is missing."""
    missing = sorted(package for path, package in TOOLS.items() if not Path(path).exists())
    if missing:
        install(missing)


def cached(name: str) -> tuple[Path, bool]:
    """The folder of that name, and whether it is there."""
    return CACHE / name, (CACHE / name).is_dir()


def bochs() -> Path:
    """The folder that Bochs and its libraries are unpacked in."""
    suite, packages = BOCHS
    folder, there = cached(f"bochs-{suite}")
    if not there:
        print(f"fetching Bochs, of {suite}", flush=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as work:
            Packages([suite], Path(work) / "apt").unpack(packages, Path(work) / "root")
            (Path(work) / "root").rename(folder)
    return folder


def kernel() -> Path:
    """A kernel's image."""
    suite, name = KERNEL
    folder, there = cached(f"kernel-{suite}")
    if not there:
        print(f"fetching a kernel, of {suite}", flush=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as work:
            packages = Packages([suite], Path(work) / "apt")
            packages.unpack_only(packages.needs(name), Path(work) / "root")
            shutil.rmtree(Path(work) / "root" / "lib", ignore_errors=True)  # modules, which nothing here loads
            (Path(work) / "root").rename(folder)
    return next((folder / "boot").glob("vmlinuz-*"))
