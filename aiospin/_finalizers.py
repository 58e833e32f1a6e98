"""Finalizers that stay quiet while the interpreter takes itself apart.

Guarantee: what such a finalizer raises then is dropped; at any other time it comes out as always.
Assumption: by then a module's names may be None. What is needed here lives in closures, which are not cleared.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def quiet_at_exit(finalize: Callable[[T], None]) -> Callable[[T], None]:
    """Decorates `__del__`. What it cannot do any more the kernel does: the process and all that it holds are going."""
    ends = sys.is_finalizing

    @functools.wraps(finalize)
    def __del__(self: T) -> None:
        try:
            finalize(self)
        except Exception:
            if not ends():
                raise

    return __del__
