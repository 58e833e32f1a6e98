"""Which vLLM is installed, what of it `install()` would replace, and what speaks against it: found out by reading.

Guarantee: nothing of vLLM is imported and nothing changed. A survey never fails for what it finds: all that is wrong is
among its reasons, in words.
Assumption: the sources lie beside the package as files, as in wheels and checkouts.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib.metadata
import importlib.util
import inspect
import os
import tokenize
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

MODULE: Final = "vllm.distributed.device_communicators.shm_broadcast"
PLUGINS: Final = "vllm.general_plugins"
"""The group of entry points that each process of vLLM runs at its start."""
ENTRY_POINT: Final = "aiospin"

# Each of these was read and compared. Their queue has one interface, but for arguments that came later with defaults,
# and the executors and process groups use it alike.
#   0.27.1 to 0.30.0  the same signatures; 0.28 begins to use check_shm_free_space elsewhere, for offloaded KV caches,
#                     and 0.30 for tables of a model
#   0.31.0            check_shm_free_space(allocation_name=)
#   0.32.0, 0.33.0    MessageQueue(enable_shm_tensor_arena=), Handle.tensor_arena_handle; their arena for tensors, which
#                     uses memory_fence, is made by their queue alone
KNOWN: Final = ("0.27.1", "0.28.0", "0.29.0", "0.30.0", "0.31.0", "0.32.0", "0.33.0")

# Public methods of their queue that only it itself calls.
_THEIR_OWN: Final = frozenset({"recv"})


@dataclass(frozen=True)
class Importer:
    """A module of vLLM that imports from `MODULE`."""

    module: str
    names: tuple[str, ...]


@dataclass(frozen=True)
class Survey:
    """What was found.

    place         the folder of the package; None if there is none
    names         what `install()` would replace in MODULE
    importers     who has those names from there
    unknown       why this vLLM is none that is known
    left_behind   why processes that it starts would not take part
    """

    version: str | None
    place: Path | None
    names: tuple[str, ...]
    importers: tuple[Importer, ...]
    unknown: tuple[str, ...]
    left_behind: tuple[str, ...]

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why `install()` would refuse; empty if it would work."""
        return self.unknown + self.left_behind


def replacements() -> dict[str, Any]:
    """What stands in for what: ours by the names that `MODULE` has for theirs."""
    from aiospin.compat.vllm._handle import Handle
    from aiospin.compat.vllm._memory import check_shm_free_space
    from aiospin.compat.vllm._queue import MessageQueue
    from aiospin.compat.vllm._spin import memory_fence

    ours = (MessageQueue, Handle, memory_fence, check_shm_free_space)
    return {one.__name__: one for one in ours}


def survey(*, importers: bool = True, ours: Mapping[str, Any] | None = None) -> Survey:
    """Look at the vLLM that an import would find. `importers` reads all of its sources, which takes seconds."""
    ours = replacements() if ours is None else ours
    place, version = _place(), _version()
    if place is None:
        missing = (
            "no vLLM is installed" if version is None else f"vLLM {version} is installed, and no package vllm found"
        )
        return Survey(version, None, tuple(ours), (), (missing,), ())
    unknown = (*_against_version(version), *_against_interface(place, ours))
    found = tuple(_importers(place, ours)) if importers else ()
    return Survey(version, place, tuple(ours), found, unknown, tuple(_against_workers()))


def _version() -> str | None:
    try:
        return importlib.metadata.version("vllm")
    except importlib.metadata.PackageNotFoundError:
        return None


def _place() -> Path | None:
    try:
        spec = importlib.util.find_spec("vllm")
    except ValueError:  # somebody put a module without a spec there
        return None
    if spec is None or spec.origin is None or not spec.submodule_search_locations:  # no origin: a folder of that name
        return None
    return Path(spec.submodule_search_locations[0])


def _against_version(version: str | None) -> Iterator[str]:
    known = f"known are {', '.join(KNOWN)}"
    if version is None:
        yield f"the version of vLLM is not known: the package has no metadata; {known}"
    elif version.partition("+")[0] not in KNOWN:  # what follows a plus names the build, not the sources
        yield f"vLLM {version} is not known: nobody has compared its queue with ours; {known}"


def _against_workers() -> Iterator[str]:
    """Processes that keep their own queue could not read ours."""
    points = importlib.metadata.entry_points(group=PLUGINS)
    if ENTRY_POINT not in {point.name for point in points}:
        yield f"worker processes would keep their queue: no entry point {ENTRY_POINT!r} of {PLUGINS}; reinstall aiospin"
    allowed = os.environ.get("VLLM_PLUGINS")
    if allowed is not None and ENTRY_POINT not in allowed.split(","):
        yield f"worker processes would keep their queue: VLLM_PLUGINS={allowed!r} does not name {ENTRY_POINT!r}"


def _against_interface(place: Path, ours: Mapping[str, Any]) -> Iterator[str]:
    path = _source_of_module(place)
    try:
        tree = _parsed(path)
    except OSError as error:
        yield f"there is no {MODULE}: {error}"
        return
    except (SyntaxError, ValueError) as error:
        yield f"{MODULE} cannot be read: {error}"
        return
    theirs = {node.name: node for node in tree.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
    for name, one in ours.items():
        definition = theirs.get(name)
        if definition is None:
            yield f"{MODULE} defines no {name}"
        elif isinstance(definition, ast.ClassDef) != inspect.isclass(one):
            yield f"{MODULE}.{name} is a {'class' if isinstance(definition, ast.ClassDef) else 'function'}"
        elif not isinstance(definition, ast.ClassDef):
            yield from _against_call(name, _parameters(definition), inspect.signature(one))
        elif dataclasses.is_dataclass(one):
            yield from _against_fields(name, definition, {field.name for field in dataclasses.fields(one)})
        else:
            yield from _against_methods(definition, one)


def _against_methods(theirs: ast.ClassDef, ours: type) -> Iterator[str]:
    for method in theirs.body:
        if not isinstance(method, ast.FunctionDef) or method.name in _THEIR_OWN:
            continue
        if method.name.startswith("_") and method.name != "__init__":
            continue
        name = f"{theirs.name}.{method.name}"
        bound = inspect.getattr_static(ours, method.name, None)
        if bound is None:
            yield f"{name} has no counterpart here"
            continue
        free = isinstance(bound, staticmethod)
        if free != any(ast.unparse(one) == "staticmethod" for one in method.decorator_list):
            yield f"{name} is {'no ' if free else 'a '}static method"
            continue
        signature = inspect.signature(getattr(ours, method.name))
        parameters = list(signature.parameters.values())
        own = signature.replace(parameters=parameters if free else parameters[1:])
        yield from _against_call(name, _parameters(method, bound=not free), own)


def _against_fields(name: str, theirs: ast.ClassDef, ours: set[str]) -> Iterator[str]:
    for node in theirs.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id not in ours:
            yield f"{name}.{node.target.id} has no counterpart here"


@dataclass(frozen=True)
class _Parameters:
    """What a definition accepts."""

    positional: tuple[str, ...]
    keyword_only: tuple[str, ...]
    open_ended: bool


def _parameters(function: ast.FunctionDef, *, bound: bool = False) -> _Parameters:
    given = function.args
    positional = [one.arg for one in (*given.posonlyargs, *given.args)][1 if bound else 0 :]
    keyword_only = [one.arg for one in given.kwonlyargs]
    return _Parameters(tuple(positional), tuple(keyword_only), given.vararg is not None or given.kwarg is not None)


def _against_call(name: str, theirs: _Parameters, ours: inspect.Signature) -> Iterator[str]:
    """Every call that suits theirs must suit ours: by name, and by place where theirs has places."""
    if theirs.open_ended:
        yield f"{name} takes any arguments, which ours does not"
        return
    parameters = list(ours.parameters.values())
    placed = [one.name for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD]
    named = {one.name for one in parameters if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)}
    for index, parameter in enumerate(theirs.positional):
        if parameter not in named:
            yield f"{name} takes {parameter!r}, which ours does not"
        elif placed[index : index + 1] != [parameter]:
            yield f"{name} takes {parameter!r} as number {index + 1}, and ours elsewhere"
    for parameter in theirs.keyword_only:
        if parameter not in named:
            yield f"{name} takes {parameter!r}, which ours does not"
    known = {*theirs.positional, *theirs.keyword_only}
    for one in parameters:
        if one.name not in known and one.default is one.empty:
            yield f"{name} does not take {one.name!r}, which ours needs"


def _source_of_module(place: Path) -> Path:
    return place.joinpath(*MODULE.split(".")[1:]).with_suffix(".py")


def _parsed(path: Path) -> ast.Module:
    """OSError, SyntaxError and ValueError are for the caller."""
    with tokenize.open(path) as source:
        return ast.parse(source.read(), str(path))


def _importers(place: Path, ours: Mapping[str, Any]) -> Iterator[Importer]:
    last = MODULE.rpartition(".")[2].encode()
    for path in sorted(place.rglob("*.py")):
        try:
            if last not in path.read_bytes():
                continue
            tree = _parsed(path)
        except (OSError, SyntaxError, ValueError):  # what cannot be read cannot be imported either
            continue
        parts = ["vllm", *path.relative_to(place).with_suffix("").parts]
        is_package = parts[-1] == "__init__"
        module = ".".join(parts[:-1] if is_package else parts)
        package = module if is_package else module.rpartition(".")[0]
        names = sorted({name for node in ast.walk(tree) for name in _imported(node, package) if name in ours})
        if names:
            yield Importer(module, tuple(names))


def _imported(node: ast.AST, package: str) -> Iterator[str]:
    """The names that a statement takes out of MODULE."""
    if not isinstance(node, ast.ImportFrom):
        return
    source = node.module or ""
    if node.level:
        above = package.split(".")[: len(package.split(".")) - node.level + 1]
        source = ".".join([*above, source] if source else above)
    if source == MODULE:
        yield from (alias.name for alias in node.names)
