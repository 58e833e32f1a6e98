"""`aiospin/__init__.py` is a table of contents: it exports, and does nothing else."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from types import ModuleType

import pytest

import aiospin

SOURCE = Path(__file__).resolve().parent.parent / "aiospin" / "__init__.py"

ERRORS = {
    *("AiospinError", "AttachError", "BlockingInEventLoopWarning", "CorruptSlot", "Empty", "ForkedUse", "FragmentLost"),
    *("Full", "LayoutMismatch", "PeerDied", "QueueClosed", "ReaderBusy", "ReaderDropped", "RoleTaken"),
    *("SegmentTooLarge", "UnsupportedPlatform", "WriterBusy"),
}
PROMISED = {
    *("Queue", "QueueReader", "QueueWriter", "ReadSlot", "WriteSlot", "WaitPolicy", "WaitSet", "Handle"),
    *("attach", "await_any", "backend", "wait_any"),
    *ERRORS,
}


def test_it_only_imports_and_lists() -> None:
    body = ast.parse(SOURCE.read_text(encoding="utf-8")).body
    assert ast.get_docstring(ast.Module(body, [])), "a table of contents says what it lists"
    for node in body[1:]:
        if isinstance(node, ast.Assign):
            (target,) = map(ast.unparse, node.targets)
            # The hot types live in the backend, so they are taken from whichever was chosen.
            assert target in {"__all__", "__version__"} or ast.unparse(node.value) == f"_core.{target}"
        else:
            assert isinstance(node, ast.ImportFrom), f"line {node.lineno}: {ast.unparse(node)}"


def test_all_is_sorted_and_complete() -> None:
    assert list(aiospin.__all__) == sorted(aiospin.__all__)
    public = {
        name for name, value in vars(aiospin).items() if not name.startswith("_") and not isinstance(value, ModuleType)
    } - {"annotations"}
    modules = {name for name in aiospin.__all__ if isinstance(getattr(aiospin, name), ModuleType)}
    assert public == {name for name in aiospin.__all__ if not name.startswith("_")} - modules


def test_what_was_promised_is_there() -> None:
    assert set(aiospin.__all__) >= PROMISED


def test_backend_is_one_of_two_names() -> None:
    assert aiospin.backend in {"native", "fallback"}


def test_version_is_the_package_version() -> None:
    pyproject = SOURCE.parent.parent / "pyproject.toml"
    assert f'version = "{aiospin.__version__}"' in pyproject.read_text(encoding="utf-8")


# Named and explained by Python's coroutine protocol.
PROTOCOL = {"close", "send", "throw", "cr_await", "cr_code", "cr_frame", "cr_running"}


def documented() -> list[str]:
    return [
        name for name in aiospin.__all__ if inspect.isclass(getattr(aiospin, name)) or callable(getattr(aiospin, name))
    ]


@pytest.mark.parametrize("name", documented())
def test_every_public_name_has_a_docstring(name: str) -> None:
    value = getattr(aiospin, name)
    assert (value.__doc__ or "").strip(), f"{name} says nothing of itself"
    if not inspect.isclass(value) or issubclass(value, BaseException):
        return
    silent = [
        member
        for member, found in inspect.getmembers(value)
        if not (member.startswith("_") or (member in PROTOCOL and hasattr(value, "__await__")))
        and (callable(found) or isinstance(found, property) or inspect.isdatadescriptor(found))
        and not (inspect.getdoc(found) or "").strip()
    ]
    assert not silent, f"{name}: {', '.join(silent)} say nothing of themselves"


@pytest.mark.parametrize("name", sorted(ERRORS - {"BlockingInEventLoopWarning"}))
def test_every_error_is_an_aiospin_error(name: str) -> None:
    assert issubclass(getattr(aiospin, name), aiospin.AiospinError)
