"""The types are API: mypy and pyright agree with the samples, and mypy refuses the mistakes."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.repository

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent


def check(tool: str, *arguments: str, where: Path) -> str:
    """What the tool prints about the arguments, whatever it thinks of them."""
    ran = subprocess.run(
        [sys.executable, "-m", tool, *arguments],
        capture_output=True,
        text=True,
        cwd=where,
        env={**os.environ, "MYPYPATH": str(ROOT), "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert ran.returncode in (0, 1), ran.stdout + ran.stderr
    return ran.stdout


def mypy(*arguments: str, where: Path) -> str:
    return check(
        "mypy", "--strict", "--config-file=", "--follow-imports=silent", "--no-incremental", *arguments, where=where
    )


def pyright(*arguments: str, where: Path) -> str:
    config = {"extraPaths": [str(ROOT)], "pythonVersion": "3.10", "typeCheckingMode": "basic"}
    (where / "pyrightconfig.json").write_text(json.dumps(config))
    return check("pyright", *arguments, where=where)


CHECKERS = {
    name: (run, verdict)
    for name, run, verdict in (("mypy", mypy, "Success"), ("pyright", pyright, "0 errors"))
    if importlib.util.find_spec(name)  # pyright is a tool of development, and not of the tests
}


def test_mypy_is_there() -> None:
    assert "mypy" in CHECKERS, "the extra `test` brings mypy"


@pytest.mark.parametrize("checker", CHECKERS)
def test_a_checker_agrees_with_the_samples(checker: str, tmp_path: Path) -> None:
    run, verdict = CHECKERS[checker]
    printed = run(str(HERE / "samples.py"), where=tmp_path)
    assert verdict in printed, printed


def test_mypy_refuses_each_mistake(tmp_path: Path) -> None:
    source = HERE / "mistakes.py"
    wrong = {number for number, line in enumerate(source.read_text().splitlines(), 1) if line.endswith("# wrong")}
    printed = mypy(str(source), where=tmp_path)
    found = {int(number) for number in re.findall(r"mistakes\.py:(\d+): error", printed)}
    assert found == wrong, printed
