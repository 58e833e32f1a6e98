"""Machines laid out in a directory, and what all findings have in common."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from aiospin.doctor.fact import Fact
from aiospin.doctor.machine import Machine


class Lab(Machine):
    """A root directory with just the files that a test writes."""

    def __init__(self, root: Path, environ: Mapping[str, str] | None = None) -> None:
        super().__init__(root, environ or {})

    def write(self, path: str, text: object) -> None:
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(f"{text}\n")

    def remove(self, path: str) -> None:
        (self.root / path).unlink()


def by_name(facts: Iterable[Fact]) -> dict[str, Fact]:
    found = list(facts)
    for fact in found:
        assert_whole(fact)
    named = {fact.name: fact for fact in found}
    assert len(named) == len(found), "two facts of one name"
    return named


def assert_whole(fact: Fact) -> None:
    """A warning says what hurts and what to do; nothing else does."""
    assert fact.name and fact.text
    assert (fact.verdict == "warn") == bool(fact.problem) == bool(fact.remedy), fact


V2 = "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate"
X86 = """\
processor\t: 0
vendor_id\t: GenuineIntel
model name\t: Intel(R) Xeon(R) Platinum 8488C
flags\t\t: fpu vme tsc constant_tsc nonstop_tsc waitpkg
bogomips\t: 4800.00

processor\t: 1
vendor_id\t: Other
"""
ARM = """\
processor\t: 0
Features\t: fp asimd evtstrm sb
CPU implementer\t: 0x41
CPU part\t: 0xd40
"""
