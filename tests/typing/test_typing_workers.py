"""The types of worker groups: mypy and pyright agree with the samples, and each refuses every mistake."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from test_typing import CHECKERS

pytestmark = pytest.mark.repository

HERE = Path(__file__).resolve().parent


@pytest.mark.parametrize("checker", CHECKERS)
def test_a_checker_agrees_with_the_samples(checker: str, tmp_path: Path) -> None:
    run, verdict = CHECKERS[checker]
    printed = run(str(HERE / "workers_samples.py"), where=tmp_path)
    assert verdict in printed, printed


@pytest.mark.parametrize("checker", CHECKERS)
def test_a_checker_refuses_each_mistake(checker: str, tmp_path: Path) -> None:
    mistakes, samples = ((HERE / f"workers_{name}.py").read_text() for name in ("mistakes", "samples"))
    (tmp_path / "workers_mistakes.py").write_text(mistakes)
    (tmp_path / "workers_samples.py").write_text(samples)
    wrong = {number for number, line in enumerate(mistakes.splitlines(), 1) if line.endswith("# wrong")}
    printed = CHECKERS[checker][0]("workers_mistakes.py", where=tmp_path)
    found = {int(number) for number in re.findall(r"workers_mistakes\.py:(\d+)(?::\d+ -)?:? error", printed)}
    assert found == wrong, printed
