"""Run the Promela models under tests/model/spin through Spin, and their mutants, which it must reject.

A mutant is a macro `M_...` that the model looks at: each is a plausible simplification of the protocol.

Guarantee: exhaustive; a search that Spin had to cut short counts as an error of the run, never as a verdict.
Assumption: `spin` and a C compiler are installed. tests/ does not need them: this is for .ci/model.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "spin"
TIMEOUT = 600  # seconds for one search; the longest takes a tenth of that


@dataclass(frozen=True)
class Setting:
    """A model with the values of its macros."""

    model: str
    macros: tuple[str, ...] = ()

    def __str__(self) -> str:
        return " ".join([self.model, *self.macros])


# The first setting of a model is the one that its mutants run in, unless MUTANT_SETTINGS names another.
SETTINGS = (
    Setting("ring", ("KILLS=2",)),
    Setting("parks"),
    Setting("completion"),
    Setting("join", ("LAST=4", "STAYS=2", "DROPS=1", "KILLS=0")),
    Setting("join", ("LAST=3", "STAYS=1", "DROPS=0", "KILLS=1")),
)
LONG_SETTINGS = (
    Setting("ring", ("KILLS=4",)),
    Setting("join", ("LAST=3", "STAYS=1", "DROPS=1", "KILLS=1")),
    Setting("join", ("LAST=4", "STAYS=2", "DROPS=0", "KILLS=1")),
)
MUTANT_SETTINGS = {"M_ATTACH_SILENT": SETTINGS[4]}


@dataclass(frozen=True)
class Found:
    """What one search found."""

    states: int
    error: str  # "" when the claim holds

    @property
    def rejected(self) -> bool:
        """Whether the claim is broken."""
        return bool(self.error)


class SpinFailed(Exception):
    """Spin or the compiler did not do its work, so nothing was shown."""


def mutants(model: str) -> list[str]:
    """The mutants that a model knows."""
    text = (FOLDER / f"{model}.pml").read_text(encoding="utf-8")
    return sorted(set(re.findall(r"^#ifn?def (M_\w+)", text, re.MULTILINE)))


def setting_of(model: str, mutant: str) -> Setting:
    """The setting that a mutant is judged in."""
    return MUTANT_SETTINGS.get(mutant) or next(setting for setting in SETTINGS if setting.model == model)


def search(setting: Setting, mutant: str | None = None) -> Found:
    """Search every state. Raises SpinFailed when that could not be done."""
    macros = [f"-D{macro}" for macro in (*setting.macros, *([mutant] if mutant else []))]
    with tempfile.TemporaryDirectory() as folder:
        _run(["spin", *macros, "-a", str(FOLDER / f"{setting.model}.pml")], folder)
        _run(["cc", "-O1", "-w", "-DSAFETY", "-DMEMLIM=4000", "-o", "pan", "pan.c"], folder)
        output = _run(["./pan", "-m1000000", "-n"], folder)
    errors = re.search(r"errors: (\d+)", output)
    states = re.search(r"(\d+) states, stored", output)
    if errors is None or states is None or "Search not completed" in output or "max search depth" in output:
        if errors is None or errors[1] == "0":
            raise SpinFailed(f"{setting} {mutant or ''}: no verdict\n{output[-2000:]}")
    assert states is not None
    error = re.search(r"^pan:\d+: (.*?) \(at depth", output, re.MULTILINE)
    return Found(int(states[1]), error[1] if error is not None and errors[1] != "0" else "")


def _run(command: Sequence[str], folder: str) -> str:
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SpinFailed(f"{' '.join(command)}: {error}") from error
    if done.returncode != 0:
        raise SpinFailed(f"{' '.join(command)}: status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout
