"""Chooses the backend, once, at import: `core` is the native module or the pure-Python package.

Guarantee: `import aiospin` never fails because of the extension. ImportError and OSError (a missing file, a missing
library, another Python) select the fallback with one logged warning that says why; every other exception is a bug of
ours and propagates. AIOSPIN_NO_EXTENSIONS selects the fallback silently, AIOSPIN_REQUIRE_EXTENSIONS refuses it.
AIOSPIN_RUNG names the rung that native waits idle with; ValueError for one that cannot be used here, saying why. In a
subinterpreter neither backend can be used, and the import fails.
"""

from __future__ import annotations

import importlib
import logging
import os
from typing import TYPE_CHECKING

from aiospin import _flags, _interpreter

__all__ = ["core", "name", "rung"]

RUNG = "AIOSPIN_RUNG"

if TYPE_CHECKING:
    import aiospin._native as core
else:

    def _choose():
        _interpreter.require_main()
        wanted = _flags.extensions()
        if wanted == "never":
            from aiospin import _fallback

            return _fallback
        try:
            # Not `from aiospin import`: where there is none, that would blame an import circle.
            _native = importlib.import_module("aiospin._native")
        except (ImportError, OSError) as error:
            if isinstance(error.__cause__, KeyboardInterrupt):  # Ctrl-C, while the module set itself up
                raise error.__cause__ from None
            if wanted == "required":
                raise
            # Formatted here and now: a log record that kept the exception would keep its frames, and all they hold.
            logging.getLogger("aiospin").warning(
                f"the native extension cannot be used ({type(error).__name__}: {error}); "
                "running on the pure-Python fallback, which parks at once and is slower"
            )
            from aiospin import _fallback

            return _fallback
        rung = os.environ.get(RUNG)
        if rung:
            try:
                _native.choose_rung(rung)
            except ValueError as error:
                raise ValueError(f"{RUNG}: {error}") from None
        return _native

    core = _choose()

name: str = core.NAME
"""Which backend runs: "native" or "fallback"."""


def rung() -> str:
    """How waits idle the CPU: the name of the native rung, or "park" for the fallback, which only sleeps."""
    return core.rung() if name == "native" else "park"
