"""Debian packages that are unpacked and not installed, of other suites and other architectures, too.

Guarantee: the system's package sources and its package database stay as they are; only what was unpacked is left. A
mirror that does not answer is asked again (.ci/retry.py), and is a SystemExit after that.
Assumption: Debian, whose own sources name the mirror.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"

# An index that could not be fetched is an error; apt-get update would only warn, and go on with an old one or none.
STRICT = "-oAPT::Update::Error-Mode=any"


def persist(command: Sequence[str]) -> None:
    """Run a command that needs the network, more than once if that stumbles. SystemExit when it still fails."""
    persistent: list[str | Path] = [sys.executable, ROOT / ".ci" / "retry.py", "--", *command]
    if subprocess.run(persistent).returncode != 0:
        raise SystemExit(f"emulation: this failed: {' '.join(command)}")


def install(packages: Sequence[str]) -> None:
    """Install tools of the system's own suite."""
    print(f"installing: {' '.join(packages)}", flush=True)
    persist(["apt-get", STRICT, "update", "-qq"])
    command = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages]
    persist(["env", "DEBIAN_FRONTEND=noninteractive", *command])


def mirror() -> str:
    """Where this system's own Debian packages come from."""
    listing = ["apt-get", "indextargets", "--format", "$(SITE) $(CODENAME)", "Created-By: Packages", "Origin: Debian"]
    done = subprocess.run(listing, capture_output=True, text=True, check=True)
    for line in done.stdout.splitlines():
        site, _, suite = line.partition(" ")
        if "-" not in suite:
            return site
    raise SystemExit(
        "emulation: apt knows no mirror of Debian here; is this Debian, and has `apt-get update` been run?"
    )


class Packages:
    """The packages of one suite, or of several, where the last one's are taken before the others'.

    It is as if nothing were installed, so all that a package depends on comes with it. `folder` is for its own files.
    """

    def __init__(self, suites: Sequence[str], folder: Path, architecture: str | None = None) -> None:
        self._folder = folder
        for name in ("lists/partial", "cache/archives/partial"):
            (folder / name).mkdir(parents=True)
        (folder / "status").touch()
        sources = [f"deb [signed-by={KEYS}] {mirror()} {suite} main\n" for suite in suites]
        (folder / "sources.list").write_text("".join(sources))
        settings = {
            "Dir::Etc::sourcelist": folder / "sources.list",
            "Dir::Etc::sourceparts": "/dev/null",
            "Dir::State::lists": folder / "lists",
            "Dir::State::status": folder / "status",
            "Dir::Cache": folder / "cache",
            "APT::Default-Release": suites[-1],
            "APT::Sandbox::User": "root",
            "Acquire::Languages": "none",
        }
        if architecture is not None:
            settings |= {"APT::Architecture": architecture, "APT::Architectures": architecture}
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
