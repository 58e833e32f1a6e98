"""What runs here: this Python, its event loops, and which half of aiospin.

Guarantee: nothing is imported but what would be imported anyway; an import that fails says why and goes no further.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import platform
import sys
import sysconfig
from collections.abc import Callable, Iterator

from aiospin import _backend, _flags
from aiospin.doctor.fact import Fact, good, plain, unknown, warning
from aiospin.doctor.machine import Machine


def version_of_uvloop() -> str:
    """ImportError (or what its own library raises) when it cannot be imported."""
    importlib.import_module("uvloop")
    return importlib.metadata.version("uvloop")


def why_no_extension() -> str:
    try:
        importlib.import_module("aiospin._native")
    except (ImportError, OSError) as error:
        return f"{type(error).__name__}: {error}"
    return "it can be imported now"


def examine(
    machine: Machine,
    backend: str = _backend.name,
    why_no_extension: Callable[[], str] = why_no_extension,
    version_of_uvloop: Callable[[], str] = version_of_uvloop,
) -> Iterator[Fact]:
    yield from _python()
    yield _backend_fact(machine, backend, why_no_extension)
    yield _loop(version_of_uvloop)


def _python() -> Iterator[Fact]:
    name = f"{platform.python_implementation()} {platform.python_version()}"
    if hasattr(sys, "gettotalrefcount"):
        yield warning(
            "python",
            f"{name}, a debug build",
            name,
            "This Python is a debug build: everything in it is several times slower.",
            "Measure and serve with a release build.",
        )
    else:
        yield plain("python", name, name)
    free = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
    locked = bool(getattr(sys, "_is_gil_enabled", lambda: True)())
    if not free:
        yield plain("threads", "one at a time (GIL)", "gil")
    elif not locked:
        yield good("threads", "free-threaded", "free")
    else:
        yield warning(
            "threads",
            "free-threaded, but the GIL is on",
            "gil",
            "This Python is free-threaded, and something turned its GIL on again: PYTHON_GIL, -X gil, or an extension "
            "module that needs it.",
            "Start it with -W default to see which module it was.",
        )


def _backend_fact(machine: Machine, backend: str, why_no_extension: Callable[[], str]) -> Fact:
    if backend == "native":
        return good("backend", "native", backend)
    try:
        forbidden = _flags.flag(_flags.NO_EXTENSIONS, machine.environ)
    except ValueError:
        forbidden = False
    slower = "aiospin runs on its pure-Python fallback, which parks at once and is slower"
    if forbidden:
        return warning(
            "backend",
            f"fallback, as {_flags.NO_EXTENSIONS} says",
            backend,
            f"{slower}, because {_flags.NO_EXTENSIONS} is set.",
            f"Unset {_flags.NO_EXTENSIONS}, unless that is what you want.",
        )
    why = why_no_extension()
    return warning(
        "backend",
        f"fallback: {why}",
        backend,
        f"{slower}, because the extension cannot be used ({why}).",
        "Install a wheel for this Python, or build it with a C++20 compiler (docs/howto/installing.md).",
    )


def _loop(version_of_uvloop: Callable[[], str]) -> Fact:
    try:
        version = version_of_uvloop()
    except (ImportError, OSError) as error:
        if platform.python_implementation() != "CPython":
            return unknown("event_loop", "asyncio; uvloop is for CPython")
        return warning(
            "event_loop",
            "asyncio; no uvloop",
            "asyncio",
            f"uvloop cannot be imported ({error}); asyncio's own loop takes about 5 us longer for each wake-up.",
            "pip install uvloop, and run your program with uvloop.run(...).",
        )
    return good("event_loop", f"uvloop {version}, beside asyncio", f"uvloop {version}")
