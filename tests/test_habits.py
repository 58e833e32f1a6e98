"""Habits that a search of the text can check.

Guarantee: each exception stands in a list here with its reason, and an exception that is no longer needed fails too.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

pytestmark = pytest.mark.repository

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ("aiospin", "native", "tests", "docs", ".ci")
SUFFIXES = {"", ".py", ".pyi", ".h", ".cpp", ".md", ".sh", ".toml"}
LONGEST = 500

# Where `time.sleep` may stand in the tests, and why that is no hoping.
SLEEPS: Mapping[str, str] = {
    "tests/conftest.py": "polls for what is on its way out, up to a deadline",
}

# Where an `except` may be broad without raising again, and why.
BROAD: Mapping[str, str] = {
    "aiospin/_finalizers.py": "drops what a finalizer raises while the interpreter ends",
    "aiospin/bench/stage.py": "tells the runner whatever a measurement raised, who reports it",
    "aiospin/workers/_child.py": "tells the group whatever a constructor raised, and ends",
    "aiospin/workers/_failure.py": "describes an exception whose own text fails",
    "aiospin/workers/_link.py": "hands whatever decoding an answer raised to the caller, who raises it",
    "aiospin/workers/_looped.py": "carries whatever a method raised to the caller, who raises it",
    "aiospin/workers/_threaded.py": "carries whatever a method raised to the caller, who raises it",
    "tests/kill/actor.py": "carries whatever an order raised to the harness, which raises it",
    "tests/forked.py": "carries whatever a forked child raised to its parent, which raises it",
    "tests/servers/pools/mp_queue.py": "carries whatever the model raised to the caller, which raises it",
}


def tracked() -> list[Path]:
    """Return every text file that is part of the project."""
    files = [path for folder in SOURCES for path in (ROOT / folder).rglob("*") if path.is_file()]
    files += [path for path in ROOT.iterdir() if path.is_file()]
    return sorted(path for path in files if path.suffix in SUFFIXES and "__pycache__" not in path.parts)


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


THIS = name(Path(__file__))
TEXTS = {name(path): path.read_text(encoding="utf-8") for path in tracked()}
PYTHON = {path: ast.parse(text) for path, text in TEXTS.items() if path.endswith(".py")}


def lines_with(pattern: str, texts: Mapping[str, str]) -> list[str]:
    """Return `file:line: text` for every line that matches, this file apart."""
    expression = re.compile(pattern)
    return [
        f"{path}:{number}: {line.strip()}"
        for path, text in texts.items()
        if path != THIS
        for number, line in enumerate(text.splitlines(), 1)
        if expression.search(line)
    ]


def only(prefix: str) -> dict[str, str]:
    return {path: text for path, text in TEXTS.items() if path.startswith(prefix)}


def assert_excepted(found: list[str], exceptions: Mapping[str, str]) -> None:
    """Fail for every file in `found` without an exception, and for every exception without a file in `found`."""
    assert not [line for line in found if line.split(":")[0] not in exceptions]
    assert not set(exceptions) - {line.split(":")[0] for line in found}, "an exception is no longer needed"


def test_tests_do_not_sleep_and_hope() -> None:
    assert_excepted(lines_with(r"\btime\.sleep\(", only("tests/")), SLEEPS)


def test_no_except_is_broad() -> None:
    found = [
        f"{path}:{node.lineno}"
        for path, tree in PYTHON.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ExceptHandler)
        and (node.type is None or re.search(r"\b(Base)?Exception\b", ast.unparse(node.type)))
        and not (isinstance(node.body[-1], ast.Raise) and node.body[-1].exc is None)
    ]
    assert_excepted(found, BROAD)


def test_nothing_is_left_open() -> None:
    assert not lines_with(r"\b(TODO|FIXME|XXX|HACK)\b|\bNotImplementedError\b", TEXTS)


def test_no_test_is_skipped_without_a_mark() -> None:
    """Backends are told apart by marks, which conftest turns into skips with reasons that it lists."""
    texts = {path: text for path, text in only("tests/").items() if path != "tests/conftest.py"}
    found = lines_with(r"pytest\.(skip|xfail|importorskip)\(|mark\.(skip|xfail)\b|unittest\.skip", texts)
    assert not found


def test_no_path_of_one_machine_is_mentioned() -> None:
    assert not lines_with(r"/root/|/home/\w|/Users/|/tmp/\w|--(?:extra-)?index-url", TEXTS)


@pytest.mark.parametrize("path", [path for path in TEXTS if path.endswith((".py", ".pyi", ".h", ".cpp"))])
def test_a_file_fits_one_sitting(path: str) -> None:
    assert TEXTS[path].count("\n") <= LONGEST


@pytest.mark.parametrize("path", [path for path in PYTHON if not path.endswith("__init__.py")])
def test_a_file_opens_with_its_job(path: str) -> None:
    assert ast.get_docstring(PYTHON[path])


@pytest.mark.parametrize("path", [path for path in TEXTS if path.endswith((".h", ".cpp"))])
def test_a_native_file_opens_with_its_job(path: str) -> None:
    """A source file may leave that to the header of the same name, which holds the contract."""
    header = path.removesuffix(".cpp") + ".h"
    assert TEXTS.get(header, TEXTS[path]).startswith("// ")


def test_vague_names_are_avoided() -> None:
    vague = {"manager", "handler", "helper", "helpers", "util", "utils", "misc", "common"}
    assert not [path for path in TEXTS if vague & set(re.split(r"[/._]", path.lower()))]


def test_errors_are_not_swallowed() -> None:
    found = [
        f"{path}:{node.lineno}"
        for path, tree in PYTHON.items()
        if path.startswith("aiospin/")
        for node in ast.walk(tree)
        if isinstance(node, ast.ExceptHandler)
        and node.type is not None
        and re.search(r"\bCancelledError\b", ast.unparse(node.type))
        and not any(isinstance(inner, ast.Raise) for inner in ast.walk(node))
    ]
    assert not found, "CancelledError is never swallowed"
