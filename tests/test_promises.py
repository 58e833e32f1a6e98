"""The page of promises keeps its own: each row names tests, and each test that it names is there.

Guarantee: a test that is renamed, moved or removed fails here until the page says where its promise is held now.
Assumption: tests are functions of modules, at any depth (some are defined only where the machine can run them).
"""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs/explanation/promises.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py::\w+)`", PAGE)))
HEAD = "| what users of such queues suffered | what aiospin promises | tests |"
RULE = "|---|---|---|"


def rows() -> list[list[str]]:
    """The cells of every row of the page's tables, heads and rules apart."""
    lines = [line for line in PAGE.splitlines() if line.startswith("|") and line not in (HEAD, RULE)]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


@functools.cache
def functions_of(path: str) -> frozenset[str]:
    """The names of a file's test functions, without collecting it."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    functions = (node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)))
    return frozenset(function.name for function in functions if function.name.startswith("test_"))


@pytest.mark.parametrize("test", NAMED)
def test_a_test_that_holds_a_promise_exists(test: str) -> None:
    path, _, name = test.partition("::")
    assert (ROOT / path).is_file(), f"there is no {path}"
    assert name in functions_of(path)


def test_every_promise_names_what_holds_it() -> None:
    for suffered, promised, tests in rows():
        assert suffered and promised
        named = tests.split("<br>")
        assert set(named) <= {f"`{test}`" for test in NAMED}, f"no test is named by {tests or suffered!r}"
        assert len(set(named)) == len(named)
    assert len(rows()) >= 45 and PAGE.count(HEAD) == PAGE.count(RULE) == 8


def test_every_promised_test_is_on_the_page() -> None:
    """The files that were written for the page alone."""
    written = {
        f"tests/{path.name}::{name}"
        for path in Path(__file__).parent.glob("test_promised_*.py")
        for name in functions_of(f"tests/{path.name}")
    }
    assert not written - set(NAMED)
