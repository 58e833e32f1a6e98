"""What a finding is: a fact about this machine, with a verdict, and a way out where it will hurt.

Guarantee: plain values. `value` is for machines (JSON), `text` for people. A problem never comes without a remedy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

Verdict = Literal["ok", "warn", "plain", "unknown"]
Value = None | bool | int | float | str | Sequence["Value"] | dict[str, "Value"]

UNITS: Final = ("bytes", "KiB", "MiB", "GiB", "TiB")


@dataclass(frozen=True)
class Fact:
    """One line of the report."""

    name: str
    """as JSON has it; people see spaces instead of underscores"""
    text: str
    value: Value
    verdict: Verdict = "plain"
    """ok: could hurt, and does not; warn: will hurt; plain: nothing to judge; unknown: the machine does not say"""
    problem: str | None = None
    """what will hurt, and whom"""
    remedy: str | None = None
    """what to do about it"""


@dataclass(frozen=True)
class Section:
    """The facts of one subject."""

    name: str
    title: str
    facts: tuple[Fact, ...]


def plain(name: str, text: str, value: Value) -> Fact:
    return Fact(name, text, value)


def good(name: str, text: str, value: Value) -> Fact:
    return Fact(name, text, value, "ok")


def unknown(name: str, why: str) -> Fact:
    return Fact(name, why, None, "unknown")


def warning(name: str, text: str, value: Value, problem: str, remedy: str) -> Fact:
    return Fact(name, text, value, "warn", problem, remedy)


def amount(nbytes: float) -> str:
    """Bytes for people."""
    nbytes = min(nbytes, 1 << 80)
    for unit in UNITS[:-1]:
        if nbytes < 1024:
            return f"{nbytes:.4g} {unit}"
        nbytes /= 1024
    return f"{nbytes:.4g} {UNITS[-1]}"


def plural(count: float, thing: str) -> str:
    return f"{count:g} {thing}{'s' * (count != 1)}"
