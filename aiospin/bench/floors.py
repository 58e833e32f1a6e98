"""What the machine can do without Python: the floors of native/floor, behind the names under which they are reported.

They are part of the extension, so that no compiler is needed when they are measured, and are there on the pure-Python
backend, too, where the extension was built.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any, Final

CACHE_LINE: Final = "C cache line"
PIPE: Final = "C pipe + epoll"
MEMCPY: Final = "C memcpy"
FLOORS: Final = (CACHE_LINE, PIPE, MEMCPY)


def native() -> Any:
    return importlib.import_module("aiospin._native")


def missing() -> str | None:
    """Why floors cannot be measured here, or None."""
    found = importlib.util.find_spec("aiospin._native")
    return None if found else "the extension was not built"
