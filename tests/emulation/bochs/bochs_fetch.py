"""What a boot needs and Debian has: Bochs and a small kernel, unpacked beside the build, and a few tools, installed.

Guarantee: nothing of another suite is installed, and the system's package sources are not touched: packages of Bochs
and of the kernel are only unpacked, under build/emulation, where later runs find them. What was fetched halfway is not
taken for whole. A mirror that does not answer is asked again (.ci/retry.py), and is an error after that.
Assumption: Debian, with root where a tool is missing. Bochs is 3.0, of trixie: 2.7 has no CPU model with these
instructions, and 3.1 does not boot here. The kernel is bookworm's for clouds, the smallest there is.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
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
KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"


# An index that could not be fetched is an error; apt-get update would only warn, and go on with an old one or none.
STRICT = "-oAPT::Update::Error-Mode=any"


def persist(command: Sequence[str]) -> None:
    """Run a command that needs the network, more than once if that stumbles. SystemExit when it still fails."""
    persistent: list[str | Path] = [sys.executable, ROOT / ".ci" / "retry.py", "--", *command]
    if subprocess.run(persistent).returncode != 0:
        raise SystemExit(f"bochs: this failed: {' '.join(command)}")


def tools() -> None:
    """Install whatever of TOOLS is missing."""
    missing = sorted(package for path, package in TOOLS.items() if not Path(path).exists())
    if missing:
        print(f"installing: {' '.join(missing)}", flush=True)
        persist(["apt-get", STRICT, "update", "-qq"])
        install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *missing]
        persist(["env", "DEBIAN_FRONTEND=noninteractive", *install])


def mirror() -> str:
    """Where this system's own Debian packages come from."""
    listing = ["apt-get", "indextargets", "--format", "$(SITE) $(CODENAME)", "Created-By: Packages", "Origin: Debian"]
    done = subprocess.run(listing, capture_output=True, text=True, check=True)
    for line in done.stdout.splitlines():
        site, _, suite = line.partition(" ")
        if "-" not in suite:
            return site
    raise SystemExit("bochs: apt knows no mirror of Debian here; is this Debian, and has `apt-get update` been run?")


class Suite:
    """The packages of one Debian suite, as if nothing were installed, in a folder of their own."""

    def __init__(self, suite: str, folder: Path) -> None:
        self._folder = folder
        for name in ("lists/partial", "cache/archives/partial"):
            (folder / name).mkdir(parents=True)
        (folder / "status").touch()
        (folder / "sources.list").write_text(f"deb [signed-by={KEYS}] {mirror()} {suite} main\n")
        settings = {
            "Dir::Etc::sourcelist": folder / "sources.list",
            "Dir::Etc::sourceparts": "/dev/null",
            "Dir::State::lists": folder / "lists",
            "Dir::State::status": folder / "status",
            "Dir::Cache": folder / "cache",
            "Acquire::Languages": "none",
            "APT::Sandbox::User": "root",
        }
        self._options = [f"-o{name}={value}" for name, value in settings.items()]
        persist(["apt-get", *self._options, STRICT, "update", "-qq"])

    def needs(self, package: str) -> str:
        """The first package that `package` depends on."""
        command = ["apt-cache", *self._options, "depends", "--important", package]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return next(line.split()[1] for line in done.stdout.splitlines() if line.strip().startswith("Depends:"))

    def unpack(self, packages: Sequence[str], target: Path) -> None:
        """Unpack these and all that they depend on."""
        install = ["install", "-y", "-qq", "--download-only", "--no-install-recommends", *packages]
        # Its listing of a thousand lines says nothing; what goes wrong is said on the other stream.
        persist(["sh", "-c", 'exec "$@" >/dev/null', "sh", "apt-get", *self._options, *install])
        self._unpack(self._folder / "cache" / "archives", target)

    def unpack_only(self, package: str, target: Path) -> None:
        """Unpack this one, without what it depends on."""
        archives = self._folder / "alone"
        archives.mkdir()
        command = f'cd "{archives}" && exec "$@"'
        persist(["sh", "-c", command, "sh", "apt-get", *self._options, "download", "-qq", package])
        self._unpack(archives, target)

    @staticmethod
    def _unpack(archives: Path, target: Path) -> None:
        for archive in sorted(archives.glob("*.deb")):
            subprocess.run(["dpkg-deb", "-x", archive, target], check=True)


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
            Suite(suite, Path(work) / "apt").unpack(packages, Path(work) / "root")
            (Path(work) / "root").rename(folder)
    return folder


def kernel() -> Path:
    """A kernel's image."""
    suite, name = KERNEL
    folder, there = cached(f"kernel-{suite}")
    if not there:
        print(f"fetching a kernel, of {suite}", flush=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as work:
            packages = Suite(suite, Path(work) / "apt")
            packages.unpack_only(packages.needs(name), Path(work) / "root")
            shutil.rmtree(Path(work) / "root" / "lib", ignore_errors=True)  # modules, which nothing here loads
            (Path(work) / "root").rename(folder)
    return next((folder / "boot").glob("vmlinuz-*"))
