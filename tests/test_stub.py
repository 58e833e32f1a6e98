"""`aiospin/_native.pyi` says what the native module holds, and the pure-Python backend holds the same.

Guarantee: a name, a class member or a parameter that exists on one side only is found here.
"""

from __future__ import annotations

import ast
import importlib
import inspect
from pathlib import Path
from types import ModuleType

import pytest

STUB = Path(__file__).resolve().parent.parent / "aiospin" / "_native.pyi"

# What only the native module has, and why the fallback needs none of it.
NATIVE_ONLY = {
    "choose_rung": "chooses how the CPU idles while a wait watches, and the fallback only sleeps",
    "Completion": "carries tokens from the waiter thread, and the fallback has no such thread",
    **dict.fromkeys(
        ("FloorWakes", "floor_bounce", "floor_copy", "floor_fan", "floor_wake"),
        "measures what the machine can do without Python, which Python cannot",
    ),
    "give_no_turns": "keeps the clock out of a count of instructions, which is of the extension's",
    **dict.fromkeys(("cpu_features", "rungs"), "says how the CPU could idle while a wait watches"),
    "rung": "names how the CPU idles while a wait watches, and the fallback only sleeps",
    "set_inline_hook": "steps through a stage that the fallback does not have",
}
NATIVE_ONLY_MEMBERS = {
    **dict.fromkeys(("_monitor", "_unmonitor", "monitor", "unmonitor"), "hands a wait to the waiter thread"),
    **dict.fromkeys(
        ("crowded", "due", "observe_park", "observe_run_delay", "park_cost_us", "seat", "spend"),
        "belongs to the learned horizon, and the fallback's is always zero",
    ),
}
# What the fallback's modules use of one another, and nobody else does.
FALLBACK_ONLY_MEMBERS = {"lessor", "role_name", "writable_ring"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def declared(body: list[ast.stmt]) -> dict[str, ast.stmt]:
    """Return what a module or class body of the stub declares, by name, without what it only imports or aliases."""
    found: dict[str, ast.stmt] = {}
    for node in body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            found[node.name] = node
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            if ast.unparse(node.annotation).rpartition(".")[2] != "TypeAlias":
                found[node.target.id] = node
    return found


def stub_module() -> dict[str, ast.stmt]:
    names = declared(ast.parse(STUB.read_text(encoding="utf-8")).body)
    return {name: node for name, node in names.items() if not name.startswith("_")}


def stub_class(name: str) -> dict[str, ast.stmt]:
    """Return the members of a class of the stub, inherited ones included, without dunder names."""
    node = stub_module()[name]
    assert isinstance(node, ast.ClassDef)
    members: dict[str, ast.stmt] = {}
    for base in node.bases:
        inherited = ast.unparse(base).partition("[")[0]
        if inherited in stub_module():
            members |= stub_class(inherited)
    members |= declared(node.body)
    return {member: value for member, value in members.items() if not is_dunder(member)}


def stub_classes() -> list[str]:
    return [name for name, node in stub_module().items() if isinstance(node, ast.ClassDef)]


def is_dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def members(cls: type) -> set[str]:
    """Return the names that a class, or a base of it other than object and the abstract ones, defines."""
    classes = [base for base in cls.__mro__ if base.__module__.startswith("aiospin")]
    return {
        name
        for base in classes
        for name in (*vars(base), *getattr(base, "__annotations__", {}))
        if not is_dunder(name) and name not in {"_abc_impl", "_is_protocol", "_pybind11_conduit_v1_"}
    }


def assert_parameters_agree(function: Function, built: object) -> None:
    """Compare the parameters where the built side tells them, and their names where callers use them."""
    try:
        signature = inspect.signature(built)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return
    there = [name.lstrip("_") for name in signature.parameters if name not in {"self", "cls"}]
    arguments = function.args
    nameless = {a.arg for a in (*arguments.posonlyargs, arguments.vararg, arguments.kwarg) if a is not None}
    listed = [*arguments.posonlyargs, *arguments.args, arguments.vararg, *arguments.kwonlyargs, arguments.kwarg]
    here = [a.arg for a in listed if a is not None and a.arg not in {"self", "cls"}]
    assert len(there) == len(here), f"{function.name}: {there}, not {here}"
    for built_name, name in zip(there, here, strict=True):
        assert name in nameless or built_name == name.lstrip("_"), f"{function.name}: {built_name}, not {name}"


def assert_class_agrees(name: str, module: ModuleType) -> None:
    for member, node in stub_class(name).items():
        built = inspect.getattr_static(getattr(module, name), member, None)
        overloaded = isinstance(node, ast.FunctionDef) and "overload" in map(ast.unparse, node.decorator_list)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and callable(built) and not overloaded:
            assert_parameters_agree(node, built)


@pytest.fixture(scope="module")
def native() -> ModuleType:
    return importlib.import_module("aiospin._native")


@pytest.fixture(scope="module")
def fallback() -> ModuleType:
    return importlib.import_module("aiospin._fallback")


@pytest.mark.native
def test_the_native_module_holds_the_stub_names(native: ModuleType) -> None:
    assert {name for name in vars(native) if not name.startswith("_")} == set(stub_module())


@pytest.mark.native
@pytest.mark.parametrize("name", stub_classes())
def test_a_native_class_holds_the_stub_members(name: str, native: ModuleType) -> None:
    assert members(getattr(native, name)) == set(stub_class(name))
    assert_class_agrees(name, native)


def test_the_fallback_exports_the_stub_names(fallback: ModuleType) -> None:
    assert set(fallback.__all__) == set(stub_module()) - set(NATIVE_ONLY)


@pytest.mark.parametrize("name", [name for name in stub_classes() if name not in NATIVE_ONLY])
def test_a_fallback_class_holds_the_stub_members(name: str, fallback: ModuleType) -> None:
    there = members(getattr(fallback, name))
    missing = set(stub_class(name)) - there - set(NATIVE_ONLY_MEMBERS)
    assert not missing, f"the fallback's {name} lacks {sorted(missing)}"
    more = {member for member in there if not member.startswith("_")} - set(stub_class(name)) - FALLBACK_ONLY_MEMBERS
    assert not more, f"the stub's {name} lacks {sorted(more)}"
    assert_class_agrees(name, fallback)
