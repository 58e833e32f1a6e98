"""What a fork does to endpoints: the child's copies are dead, and touch nothing that the parent shares.

Guarantee: after a fork no inherited endpoint, slot or view of the child writes to the segment or rings a bell.
Assumption: forks go through os.fork (multiprocessing does), so that the hook runs before any other code of the child.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Inheritable(Protocol):
    """Something that a forked child inherits and must not use."""

    def _after_fork(self) -> None: ...


_open: weakref.WeakSet[Inheritable] = weakref.WeakSet()


def watch(endpoint: Inheritable) -> None:
    """Call the endpoint's `_after_fork` in every child from now on, until it is collected."""
    _open.add(endpoint)


def _in_child() -> None:
    inherited = list(_open)
    _open.clear()
    for endpoint in inherited:
        endpoint._after_fork()


if hasattr(os, "register_at_fork"):  # absent where there is no fork
    os.register_at_fork(after_in_child=_in_child)
