"""Where findings come from: the files of a machine, and the environment.

Guarantee: reading never raises. What is absent, unreadable, too large or no text is None, or as much of it as can be
read. `root` is "/" but in tests, which lay out a machine of their own below another directory.
Assumption: files of /proc and /sys are small, and the text in them is ASCII.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

LONGEST: Final = 1 << 20
"""bytes of a file that are read; /proc/cpuinfo of a thousand CPUs is longer, and repeats itself"""


@dataclass(frozen=True)
class Machine:
    root: Path = Path("/")
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)

    def text(self, path: str) -> str | None:
        """What is in a file, without the white space around it."""
        try:
            with open(self.root / path, "rb", buffering=0) as file:
                return file.read(LONGEST).decode("utf-8", "replace").strip("\0 \t\r\n")
        except (OSError, ValueError):  # the latter for a name with a NUL in it
            return None

    def number(self, path: str) -> int | None:
        """The whole number in a file."""
        return whole(self.text(path))

    def names(self, path: str) -> list[str]:
        """What is in a directory, ordered as people count: state2 before state10."""
        try:
            return sorted(os.listdir(self.root / path), key=lambda name: (len(name), name))
        except (OSError, ValueError):
            return []

    def has(self, path: str) -> bool:
        return os.path.lexists(self.root / path)

    def target(self, path: str) -> str | None:
        """Where a link leads."""
        try:
            return os.readlink(self.root / path)
        except (OSError, ValueError):
            return None

    def why_unread(self, path: str) -> str:
        """Why a file cannot be read: "there is no ...", "root only", or the kernel's words."""
        try:
            with open(self.root / path, "rb", buffering=0) as file:
                file.read(LONGEST)
        except OSError as error:
            if error.errno == errno.ENOENT:
                return f"there is no /{path}"
            if error.errno in (errno.EACCES, errno.EPERM):
                return f"/{path} may not be read by uid {os.geteuid()}"
            return f"/{path}: {error.strerror}"
        return f"/{path} holds no number"

    def mount(self, point: str) -> tuple[str, frozenset[str]] | None:
        """The type and the options of the file system that is mounted there; the last one, which covers the others."""
        found = None
        for line in (self.text("proc/self/mountinfo") or "").splitlines():
            before, _, after = line.partition(" - ")
            where, what = before.split(), after.split()
            if len(where) > 5 and what and where[4] == point:
                found = what[0], frozenset(",".join([where[5], *what[2:]]).split(","))
        return found


def whole(text: str | None) -> int | None:
    """A whole number of at most 20 digits; None for anything else."""
    digits = (text or "").removeprefix("-")
    return int(text or "") if digits.isascii() and digits.isdecimal() and len(digits) <= 20 else None
