"""Where tests can step into a wait. Nothing here costs the path of a message that is ready.

Guarantee: without a hook nothing is called. Assumption: hooks are set by `aiospin.testing` only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

stage: Callable[[str, Any], None] | None = None


def reached(name: str, operation: Any) -> None:
    """A waiting operation has come to a stage."""
    if stage is not None:
        stage(name, operation)
