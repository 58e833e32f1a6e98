"""The policy, and what AIOSPIN_* variables say; those that are wrong, or that nobody reads.

Guarantee: every variable that begins with AIOSPIN_ is named. Nothing here depends on what the import made of them.
"""

from __future__ import annotations

import difflib
import os
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from aiospin import _backend, _flags, _policy
from aiospin.doctor.fact import Fact, good, plain, warning
from aiospin.doctor.machine import Machine
from aiospin.doctor.rungs import Verdicts, verdicts

PREFIX: Final = "AIOSPIN_"
DIRECTORY: Final = "AIOSPIN_DIR"
FEATURES: Final = "AIOSPIN_CPU_FEATURES"
BUILD: Final = ("AIOSPIN_DEVELOP", "AIOSPIN_BUILD_JOBS")


def examine(machine: Machine, found: Verdicts | None = None) -> Iterator[Fact]:
    """`found` are the native module's verdicts about rungs by default."""
    found = verdicts() if found is None else found
    yield _policy_fact(machine.environ.get(_policy.ENVIRONMENT))
    judges: Mapping[str, Callable[[Machine, str, str], Fact]] = {
        _backend.RUNG: lambda machine, name, value: _rung(name, value, found),
        DIRECTORY: _directory,
        _flags.NO_EXTENSIONS: _flag,
        _flags.REQUIRE_EXTENSIONS: _flag,
        FEATURES: _features,
        **dict.fromkeys(BUILD, _built),
    }
    for name in sorted(machine.environ):
        if name.startswith(PREFIX) and name != _policy.ENVIRONMENT:
            yield judges.get(name, _stray)(machine, name, machine.environ[name])


def _policy_fact(name: str | None) -> Fact:
    policy = _policy.PRESETS.get(name or "balanced")
    if policy is None:
        return warning(
            "policy",
            f"{_policy.ENVIRONMENT}={name!r} is no preset",
            name,
            f"{_policy.ENVIRONMENT}={name!r} is not a preset: every queue without policy= raises ValueError.",
            f"Set it to one of {', '.join(_policy.PRESETS)}, or unset it.",
        )
    source = f", as {_policy.ENVIRONMENT} says" if name else ""
    if not policy.parks:
        return plain("policy", f"{policy.name}{source}: waits never park", policy.name)
    watched = f"up to {policy.maximum_us:g} us" if policy.maximum_us else "up to a park's cost"
    text = f"{policy.name}{source}: watches {watched}, {policy.core_share:.0%} of a core"
    return plain("policy", text, policy.name)


def _rung(name: str, value: str, found: Verdicts) -> Fact:
    if value not in ("", *_policy.RUNGS):
        return warning(
            name,
            f"{value!r} is no rung",
            value,
            f"{name}={value!r} is not a rung: natively `import aiospin` raises ValueError.",
            f"Set it to one of {', '.join(_policy.RUNGS)}, or unset it.",
        )
    if not value or not found:
        return plain(name, f"{value!r}: read by the native extension only" if value else "empty", value)
    refusal = dict(found).get(value, "this kind of CPU has no such rung")
    if refusal is None:
        return good(name, value, value)
    return warning(
        name,
        f"{value}: {refusal}",
        value,
        f"{name}={value} cannot be used here: {refusal}. `import aiospin` raises ValueError.",
        "Unset it, or name one of the rungs that can be used.",
    )


def _flag(machine: Machine, name: str, value: str) -> Fact:
    try:
        on = _flags.flag(name, machine.environ)
        _flags.extensions(machine.environ)
    except ValueError as error:
        return warning(
            name, repr(value), value, f"`import aiospin` raises ValueError: {error}.", "Set it to 1 or 0, or unset it."
        )
    return plain(name, "on" if on else "off", on)


def _directory(machine: Machine, name: str, value: str) -> Fact:
    path = os.path.abspath(value or ".")
    try:
        status = os.stat(path)
        problem = None if stat.S_ISDIR(status.st_mode) else "is no directory"
        if problem is None and not os.access(path, os.W_OK | os.X_OK):
            problem = f"may not be written to by uid {os.geteuid()}"
        if problem is None and value:
            os.rmdir(tempfile.mkdtemp(prefix="doctor-", dir=path))  # /proc, for one, only looks as if it could be used
    except (OSError, ValueError) as error:
        problem = f"cannot be used ({error.strerror if isinstance(error, OSError) else error})"
    if not value:
        return plain(name, "empty: named segments go to /dev/shm", value)
    if problem is None:
        return good(name, value, value)
    return warning(
        name,
        f"{value} {problem}",
        value,
        f"{name}={value} {problem}, so no named segment can be made.",
        "Make that directory, best in memory (a tmpfs) and with mode 0700, or unset the variable.",
    )


def _features(machine: Machine, name: str, value: str) -> Fact:
    return warning(
        name,
        f"{value!r}: for tests",
        value,
        f"{name}={value!r} corrects what the CPU says of itself, so the rungs above may be wrong.",
        "That is for tests: unset it.",
    )


def _built(machine: Machine, name: str, value: str) -> Fact:
    return plain(name, f"{value!r}: read when aiospin is built", value)


def _stray(machine: Machine, name: str, value: str) -> Fact:
    known = (_policy.ENVIRONMENT, _backend.RUNG, DIRECTORY, _flags.NO_EXTENSIONS, _flags.REQUIRE_EXTENSIONS, *BUILD)
    near = difflib.get_close_matches(name, known, n=1)
    return warning(
        name,
        f"{value!r}: aiospin reads no such variable",
        value,
        f"{name} is set, and aiospin reads no variable of that name.",
        f"Is {near[0]} meant?" if near else "Unset it; docs/reference/environment.md names those that there are.",
    )
