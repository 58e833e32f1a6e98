"""An import only points down: the table of layers, for the package and for the native library.

A new module is entered here first, which is the moment to ask where it belongs. Modules on one line do not import each
other; a package (`_fallback`, `cli`) is one unit here and is free of cycles inside.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

pytestmark = pytest.mark.repository

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "aiospin"
NATIVE = ROOT / "native"

# Lowest first.
LAYERS = [
    {
        "_children",
        "_deadline",
        "_degraded",
        "_errors",
        "_finalizers",
        "_flags",
        "_interpreter",
        "_layout",
        "_pages",
        "_seams",
    },
    {"_cgroup", "_handle", "_header", "_host", "_codec", "_fallback", "_native"},
    {"_exhaustion", "_preflight", "_descriptors", "_backend"},
    {"_backing", "_policy", "_loop", "_word"},
    {"_segment"},
    {"_roles", "_travel", "_statistics", "_acquire", "_named"},
    {"_peers", "_stall", "_tenancy"},
    {"_endpoint"},
    {"_reader"},
    {"_writer"},
    {"_queue"},
    {"_waitset"},
    {"lowlevel", "testing"},
    {"__init__"},
    {"bench", "doctor", "workers", "compat"},
    {"cli"},
    {"__main__"},
]
LEVEL = {module: level for level, modules in enumerate(LAYERS) for module in modules}

NATIVE_LAYERS = ["platform", "floor", "cpu", "shm", "queue", "wait", "bindings"]

# What only `_loop` may touch (and the command line, which owns its loop).
LOOP_CALLS = {
    *("add_reader", "remove_reader", "call_soon_threadsafe"),
    *("get_running_loop", "get_event_loop", "new_event_loop"),
}
LOOP_OWNERS = frozenset({"_loop", "cli", "bench"})


def unit(path: Path) -> str:
    """Return the name under which a file stands in LAYERS."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path: Path, *, typing_too: bool = True) -> Iterator[str]:
    """Yield the dotted name of every module of this package that a file imports, at whatever depth."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    skipped = set()
    if not typing_too:
        for node in ast.walk(tree):
            if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
                skipped.update(ast.walk(node))
    for node in ast.walk(tree):
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "aiospin")
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: imports are absolute here"
            assert node.module is not None
            if node.module.split(".")[0] != "aiospin":
                continue
            for alias in node.names:
                inner = PACKAGE.joinpath(*node.module.split(".")[1:], alias.name)
                is_module = inner.is_dir() or inner.with_suffix(".py").exists() or alias.name in LEVEL
                yield f"{node.module}.{alias.name}" if is_module else node.module


def python_files(*, without: frozenset[str] = frozenset()) -> list[Path]:
    return sorted(path for path in PACKAGE.rglob("*.py") if unit(path) not in without)


@pytest.mark.parametrize("path", python_files(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_python_imports_point_down(path: Path) -> None:
    here = unit(path)
    assert here in LEVEL, f"{here} has no layer yet"
    for name in imports(path):
        there = name.split(".")[1] if "." in name else "__init__"
        assert there in LEVEL, f"{there} has no layer yet"
        if there != here:
            assert LEVEL[there] < LEVEL[here], f"{here} imports {there}, which is not below it"


def assert_no_cycle(graph: Mapping[str, set[str]]) -> None:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"a third, lower file is missing here: {' -> '.join(error.args[1])}")


def test_python_imports_form_no_cycle() -> None:
    graph = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): {
            name if name != "aiospin" else "aiospin.__init__" for name in imports(path, typing_too=False)
        }
        for path in python_files()
    }
    assert_no_cycle(graph)


@pytest.mark.parametrize("path", python_files(without=LOOP_OWNERS), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_only_the_loop_module_touches_an_event_loop(path: Path) -> None:
    called = {
        node.func.attr
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    }
    assert not called & LOOP_CALLS


def native_files(*, without: str = "") -> list[Path]:
    files = (path for path in NATIVE.rglob("*") if path.suffix in {".h", ".cpp"})
    return sorted(path for path in files if path.relative_to(NATIVE).parts[0] != without)


def quoted_includes(path: Path) -> list[str]:
    return re.findall(r'^\s*#\s*include\s+"([^"]+)"', path.read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize("path", native_files(), ids=lambda path: str(path.relative_to(NATIVE)))
def test_native_includes_point_down(path: Path) -> None:
    layer = path.relative_to(NATIVE).parts[0]
    assert layer in NATIVE_LAYERS, f"{layer}/ has no layer yet"
    for include in quoted_includes(path):
        assert (NATIVE / include).is_file(), f'"{include}" is not a path from native/'
        there = include.split("/")[0]
        assert NATIVE_LAYERS.index(there) <= NATIVE_LAYERS.index(layer), f"{layer}/ includes {include}"


@pytest.mark.parametrize("path", native_files(without="bindings"), ids=lambda path: str(path.relative_to(NATIVE)))
def test_only_bindings_know_python(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert not re.search(r'#\s*include\s*[<"](pybind11/|Python\.h|structmember\.h)', text)


def test_native_includes_form_no_cycle() -> None:
    assert_no_cycle({str(path.relative_to(NATIVE)): set(quoted_includes(path)) for path in native_files()})
