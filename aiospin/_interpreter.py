"""Refuses a subinterpreter.

A role is a lock, and the kernel gives locks to processes: two interpreters of one process would each take the role that
the other one holds, and each would drop the other's locks by closing a descriptor. So there is one interpreter of a
process that uses aiospin, the main one, on either backend.

Guarantee: `require_main` raises ImportError in any other. Assumption: where Python has no module that can tell (a build
without it), there is no subinterpreter either; the extension asks CPython itself.
"""

from __future__ import annotations

import importlib
from typing import Any


def _interpreters() -> Any:
    """Python's own module about its interpreters, whatever this version calls it."""
    for name in ("_interpreters", "_xxsubinterpreters"):
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    return None


def require_main() -> None:
    """ImportError unless this is the main interpreter of the process."""
    interpreters = _interpreters()
    if interpreters is not None and interpreters.get_current() != interpreters.get_main():
        raise ImportError(
            "aiospin works in the main interpreter of a process only, and this is a subinterpreter: roles are locks, "
            "which belong to the process, so interpreters would take them from each other. Use a process instead"
        )
