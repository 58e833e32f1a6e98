"""Commands whose standard streams are closed, full, or lead nowhere: the result is the same, and is all of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.repository  # what it stands on is tested on every Python

ROOT = Path(__file__).resolve().parent.parent
COMMANDS = {
    "demo": ["demo", "--idle", "0", "--json", "--workers", "1", str(ROOT / "docs" / "tutorial")],
    "doctor": ["doctor", "--json", "--measure-power", "--seconds", "0.01"],
    "bench": ["bench", "--scenario", "storm", "--peers", "Pipe", "--rounds", "1", "--seconds", "0.01", "--json"],
    "ls": ["ls", "--json"],
}


def run(command: list[str], redirections: str) -> tuple[int, str]:
    shell = ["sh", "-c", f'exec "$@" {redirections}', "sh", sys.executable, "-m", "aiospin", *command]
    done = subprocess.run(shell, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
    return done.returncode, done.stdout


@pytest.mark.parametrize("redirections", ["2>&-", "2>/dev/full", "<&-", "<&- 2>&-"])
@pytest.mark.parametrize("name", COMMANDS)
def test_the_result_is_whole_without_a_stream(name: str, redirections: str) -> None:
    status, out = run(COMMANDS[name], redirections)
    document = json.loads(out)  # no line of progress is among it
    assert status in ((0, 1) if name == "doctor" else (0,))
    if name == "doctor":
        modes = document["power"]["modes"].values()
        assert modes and all(each["failure"] is None for each in modes)


def test_who_does_not_idle_has_no_share_of_a_core() -> None:
    status, out = run(COMMANDS["demo"], "")
    document = json.loads(out)
    assert status == 0
    assert document["idle_cpu_percent"] is None
    assert {each["idle_cpu_percent"] for each in document["processes"]} == {None}
    _, table = run([each for each in COMMANDS["demo"] if each != "--json"], "")
    assert table.splitlines()[-1].split()[-1] == "-"
