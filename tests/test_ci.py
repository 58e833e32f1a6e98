"""CI's own logic: what is tried again, and what README's commands are."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import pytest

pytestmark = pytest.mark.repository

ROOT = Path(__file__).resolve().parent.parent


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"ci_{name}", ROOT / ".ci" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


retry = load("retry")
readme = load("readme")

HICCUPS = [
    "E: Failed to fetch http://deb.example/x.deb  Temporary failure resolving 'deb.example'",
    "E: Failed to fetch http://deb.example/x.deb  Connection timed out [IP: 192.0.2.1 80]",
    "E: Failed to fetch http://deb.example/x.deb  503  Service Unavailable [IP: 192.0.2.1 80]",
    "E: Failed to fetch http://deb.example/Packages.gz  Hash Sum mismatch",
    "WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError(...)'\n"
    "ERROR: Could not find a version that satisfies the requirement six (from versions: none)",
    "pip._vendor.urllib3.exceptions.ReadTimeoutError: HTTPSConnectionPool(host='pypi.example'): Read timed out.",
    "npm error code ECONNRESET",
]

VERDICTS = [
    "native/shm/doorbell.cpp:12:3: error: 'ring' was not declared in this scope",
    "native/shm/layout.h:3:10: fatal error: atomic: No such file or directory",
    "undefined reference to `aiospin::relax()'",
    "E: Unable to locate package clagn",
    "ERROR: No matching distribution found for aiospinn",
    "ERROR: 404 Client Error: Not Found for url",
    "======= 1 failed, 812 passed in 61.20s (0:01:01) =======",
    "ModuleNotFoundError: No module named 'aiospin'",
    "",
]


@pytest.mark.parametrize("output", HICCUPS)
def test_what_the_network_broke_is_tried_again(output: str) -> None:
    assert retry.is_hiccup(output)


@pytest.mark.parametrize("output", VERDICTS)
def test_what_the_project_broke_is_not_tried_again(output: str) -> None:
    assert not retry.is_hiccup(output)


@pytest.mark.parametrize("verdict", [VERDICTS[0], VERDICTS[1], VERDICTS[2], VERDICTS[6]])
def test_a_verdict_outweighs_an_earlier_hiccup(verdict: str) -> None:
    assert not retry.is_hiccup(f"{HICCUPS[4]}\n{verdict}\n")


def test_a_passing_summary_is_no_verdict() -> None:
    assert retry.is_hiccup(f"812 passed, 0 failed in 61.20s\n{HICCUPS[0]}")


def attempts(*outcomes: tuple[int, str]) -> tuple[int, int, list[float]]:
    """Let `persist` see `outcomes` in turn. Returns its status, how many it took, and the pauses."""
    left = list(outcomes)
    pauses: list[float] = []

    def attempt(command: Sequence[str]) -> tuple[int, str]:
        assert command == ["fetch"]
        return left.pop(0)

    status: int = retry.persist(["fetch"], attempt, pauses.append)
    return status, len(outcomes) - len(left), pauses


def test_success_ends_the_attempts() -> None:
    assert attempts((100, HICCUPS[0]), (0, ""), (1, "")) == (0, 2, [retry.PAUSES[0]])


def test_a_verdict_ends_the_attempts() -> None:
    assert attempts((100, HICCUPS[0]), (1, VERDICTS[0]), (0, "")) == (1, 2, [retry.PAUSES[0]])


def test_the_network_has_four_chances() -> None:
    assert attempts(*[(100, HICCUPS[0])] * 5) == (100, 4, list(retry.PAUSES))


def test_output_and_status_pass_through(capfd: pytest.CaptureFixture[str]) -> None:
    program = "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"
    assert retry.persist([sys.executable, "-c", program]) == 3
    assert sorted(capfd.readouterr().out.split()) == ["err", "out"]


@pytest.mark.parametrize("name", ["demo", "server", "tests"])
def test_readme_has_its_commands(name: str) -> None:
    command = readme.command(name, (ROOT / "README.md").read_text(encoding="utf-8"))
    assert command.startswith("python3 -m venv ")


def test_a_missing_or_longer_command_is_refused() -> None:
    with pytest.raises(ValueError, match="0 commands called 'demo'"):
        readme.command("demo", "nothing here")
    with pytest.raises(ValueError, match="2 lines"):
        readme.command("demo", "<!-- command: demo -->\n```sh\na\nb\n```\n<!-- /command -->")
