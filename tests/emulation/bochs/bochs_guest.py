"""What is run in a guest, on which CPU, and what must come of it.

Guarantee: each CPU model has one plan, in one boot; the programs say themselves whether they hold.
Assumption: Bochs 3.0's `arrow_lake` has WAITPKG and no MONITORX, and its `ryzen` the reverse.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

NATIVE_TESTS = "/bin/native-tests"
PROBE = "/bin/probe"
PYTHON = "/python/bin/python"
PYTHON_PROGRAM = "/python/program.pyc"

# The unit tests that wait, and those of what waits stand on. The rest knows nothing of the CPU.
TEST_FILES = "*native/cpu/*,*test_ladder.cpp,*test_service.cpp"

NO_WAITPKG, NO_MONITORX = "CPUID reports no WAITPKG", "CPUID reports no MONITORX"
REFUSED = "it raised SIGILL"


@dataclass(frozen=True)
class Cpu:
    """A CPU model of Bochs, and what the library must make of it."""

    model: str
    best: str
    refusals: Mapping[str, str]
    """Of each rung; empty for one that can be used."""
    lie: str
    """A feature that it has not."""
    refusals_when_lied_to: Mapping[str, str]
    """As if CPUID had reported that feature: the trial execution finds out."""


CPUS = (
    Cpu(
        "arrow_lake",
        "umwait",
        {"umwait": "", "tpause": "", "mwaitx": NO_MONITORX, "pause": "", "yield": ""},
        "monitorx",
        {"umwait": "", "tpause": "", "mwaitx": REFUSED},
    ),
    Cpu(
        "ryzen",
        "mwaitx",
        {"umwait": NO_WAITPKG, "tpause": NO_WAITPKG, "mwaitx": "", "pause": "", "yield": ""},
        "waitpkg",
        {"umwait": REFUSED, "tpause": REFUSED, "mwaitx": ""},
    ),
)


def expectations(best: str, refusals: Mapping[str, str]) -> list[str]:
    return [*(f"{rung}={refusal}" for rung, refusal in refusals.items()), f"chosen={best}"]


def plan(cpu: Cpu, rounds: int) -> str:
    """The lines of /plan for it (init.cpp says what they mean)."""
    lines = [
        ["dispatch", PROBE, "verdicts", *expectations(cpu.best, cpu.refusals)],
        [
            "dispatch under a lie",
            f"AIOSPIN_CPU_FEATURES=+{cpu.lie}",
            PROBE,
            "verdicts",
            *expectations(cpu.best, cpu.refusals_when_lied_to),
        ],
        ["faults", PROBE, "faults", "waitpkg" if cpu.best == "umwait" else "none"],
        ["waits", PROBE, "waits", str(20 * rounds)],
    ]
    if cpu.best == "umwait":
        lines.append(["limit", PROBE, "limit"])
    for number in range(rounds):
        turn = f" {number + 1}" if rounds > 1 else ""
        lines.append([f"unit tests{turn}", NATIVE_TESTS, f"--source-file={TEST_FILES}", "--no-colors=true"])
        home = ["PYTHONHOME=/python", "PYTHONDONTWRITEBYTECODE=1", "PYTHONUTF8=1"]
        lines.append([f"python{turn}", *home, PYTHON, "-S", PYTHON_PROGRAM, cpu.best])
    return "".join("\t".join(line) + "\n" for line in lines)
