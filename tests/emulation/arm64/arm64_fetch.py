"""Fetch what the arm64 evidence runs on, and install none of it: QEMU, an arm64 Python with its packages, a kernel.

Guarantee: packages are unpacked under build/emulation/arm64 and the system's package database is left as it is; only
the cross compiler is installed, where it is missing. What has been fetched is not fetched again, and a fetch that was
cut short is. Each command has another try when the network stumbles.
Assumption: Debian bookworm as root; its own sources name the mirror. QEMU is that of bookworm-backports: the one of
bookworm knows neither WFET nor an event stream of user programs.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from arm64_places import CXX, EMULATOR, KERNEL, OBJDUMP, RETRY, ROOT, SITE, TARGET, TRIPLET

SUITE = "bookworm"
BACKPORTS = f"{SUITE}-backports"
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
MIRROR = re.compile(r"^(?:URIs:|deb\s+(?:\[[^]]*\]\s+)?)\s*(\S+/debian)/?(?:\s|$)", re.MULTILINE)

# What the tests of waiting import, as pyproject.toml asks for it.
PACKAGES = ("hypothesis", "msgspec", "numpy", "packaging", "pytest", "pytest-asyncio", "pytest-timeout", "uvloop")


def run(*command: str) -> str:
    """Run a command that may need the network. Returns its output; raises SystemExit with it when it fails."""
    done = subprocess.run(
        [*RETRY, *command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode != 0:
        raise SystemExit(f"arm64: `{' '.join(command)}` failed:\n{done.stdout}")
    return done.stdout


def mirror() -> str:
    """Return where this system's own packages come from."""
    folder = Path("/etc/apt/sources.list.d")
    files = [Path("/etc/apt/sources.list"), *sorted(folder.glob("*.sources")), *sorted(folder.glob("*.list"))]
    for path in files:
        if path.exists() and (found := MIRROR.search(path.read_text(encoding="utf-8"))):
            return found[1]
    raise SystemExit("arm64: no source of Debian packages is known here")


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


def debs(folder: Path, packages: Iterable[str], architecture: str, suites: Iterable[str] = (SUITE,)) -> None:
    """Unpack `packages` of the last of `suites`, and all that they depend on, into `folder`."""
    wanted = " ".join([architecture, *suites, *packages])
    if once(folder, wanted):
        return
    print(f"arm64: fetching {wanted}", flush=True)
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        (work / "lists" / "partial").mkdir(parents=True)
        (work / "cache" / "archives" / "partial").mkdir(parents=True)
        (work / "status").touch()  # nothing is installed: every dependency is fetched
        (work / "sources.list").write_text(
            "".join(f"deb [signed-by={KEYRING}] {mirror()} {suite} main\n" for suite in suites)
        )
        settings = {
            "Dir::Etc::sourcelist": work / "sources.list",
            "Dir::Etc::sourceparts": "/dev/null",
            "Dir::State::lists": work / "lists",
            "Dir::State::status": work / "status",
            "Dir::Cache": work / "cache",
            "APT::Architecture": architecture,
            "APT::Architectures": architecture,
            "APT::Sandbox::User": "root",
            "APT::Default-Release": list(suites)[-1],
            "Acquire::Languages": "none",
        }
        options = [text for key, value in settings.items() for text in ("-o", f"{key}={value}")]
        run("apt-get", *options, "update", "-qq")
        run("apt-get", *options, "install", "-y", "-qq", "--download-only", "--no-install-recommends", *packages)
        for archive in sorted((work / "cache" / "archives").glob("*.deb")):
            subprocess.run(["dpkg-deb", "-x", archive, folder], check=True)
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
    run(
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--only-binary=:all:",
        *tags,
        "--target",
        str(SITE),
        *requirements(),
    )
    complete(SITE, wanted)


def cross_compiler() -> None:
    """Install it where it is missing."""
    if shutil.which(CXX) and shutil.which(OBJDUMP):
        return
    print(f"arm64: installing {CXX}", flush=True)
    run("apt-get", "update", "-qq")
    run("apt-get", "install", "-y", "-qq", "--no-install-recommends", f"g++-{TRIPLET}")


def everything() -> None:
    """Fetch all of it."""
    cross_compiler()
    debs(EMULATOR, ["qemu-user", "qemu-system-arm"], "amd64", [SUITE, BACKPORTS])
    debs(TARGET, ["python3.11", "libpython3.11-dev", "libstdc++6"], "arm64")
    debs(KERNEL, ["linux-image-cloud-arm64"], "arm64")
    site()
