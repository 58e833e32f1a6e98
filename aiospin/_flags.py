"""Read an on/off environment variable, with one meaning at build time and at run time.

Guarantee: `setup.py` and the package decide alike, because both call this file. Whatever is neither on nor off is
refused rather than guessed.
Assumption: standard library only and no import of the package, so that `setup.py` can load this file by its path.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final, Literal

__all__ = ["NO_EXTENSIONS", "REQUIRE_EXTENSIONS", "extensions", "flag"]

NO_EXTENSIONS: Final = "AIOSPIN_NO_EXTENSIONS"
REQUIRE_EXTENSIONS: Final = "AIOSPIN_REQUIRE_EXTENSIONS"

_OFF: Final = frozenset({"", "0"})
_ON: Final = frozenset({"1", "true", "yes", "on"})


def flag(name: str, environ: Mapping[str, str] | None = None) -> bool:
    """Return whether the environment variable `name` is on.

    Unset, empty and `0` are off; `1`, `true`, `yes` and `on` in any case are on. Anything else raises ValueError naming
    the variable and its value. `environ` defaults to the process environment.
    """
    value = (os.environ if environ is None else environ).get(name, "")
    if value in _OFF:
        return False
    if value.lower() in _ON:
        return True
    raise ValueError(f"{name}={value!r} is neither on (1, true, yes, on) nor off (0, empty, unset)")


def extensions(environ: Mapping[str, str] | None = None) -> Literal["never", "optional", "required"]:
    """Return what the environment wants of the native extension: the same answer for building it and for importing it.

    Raises ValueError when it is both forbidden and required.
    """
    never, required = flag(NO_EXTENSIONS, environ), flag(REQUIRE_EXTENSIONS, environ)
    if never and required:
        raise ValueError(f"{NO_EXTENSIONS} and {REQUIRE_EXTENSIONS} are both on: choose one")
    return "never" if never else "required" if required else "optional"
