"""How descriptors get into a process that multiprocessing is about to start.

Guarantee: each descriptor travels once per started process, however many endpoints of its segment are passed along;
the child's copies are closed on exec like all others.
Assumption: only pickling for a new process can carry descriptors. Through a multiprocessing queue or a file nothing
travels, and the receiver finds the segment as it would from a text handle.
"""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Mapping
from typing import Any, Protocol

from aiospin._errors import AttachError
from aiospin._segment import SEGMENT_KEY, Segment


class Traveller(Protocol):
    """A descriptor wrapped by multiprocessing (its DupFd): what unpickles in the child knows its number there."""

    def detach(self) -> int: ...


# What was already handed to a process that is being started. A number given twice would make the start fail.
_aboard: weakref.WeakKeyDictionary[Any, dict[int, Traveller]] = weakref.WeakKeyDictionary()


def travel(segment: Segment, role: int) -> dict[int, Traveller] | None:
    """What the holder of `role` needs, wrapped for pickling, by SEGMENT_KEY and roles of bells.

    None when multiprocessing is not starting a process now. AttachError if a bell cannot be opened any more.
    """
    popen = _popen_in_progress()
    if popen is None:
        return None
    wrapped = _aboard.setdefault(popen, {})
    return {key: _wrap(fd, wrapped) for key, fd in {SEGMENT_KEY: segment.fd, **segment.bells_for(role)}.items()}


def land(travelled: Mapping[int, Traveller]) -> dict[int, int]:
    """In the child: the descriptors, ready for `Segment.adopt`. Landing twice gives the same numbers."""
    landed = {key: wrapped.detach() for key, wrapped in travelled.items()}
    try:
        for fd in landed.values():
            os.set_inheritable(fd, False)
    except OSError as error:
        raise AttachError(f"a descriptor that came with the endpoint is not open here: {error}") from error
    return landed


def _popen_in_progress() -> Any:
    if "multiprocessing.context" not in sys.modules:
        return None
    from multiprocessing.context import get_spawning_popen

    return get_spawning_popen()


def _wrap(fd: int, wrapped: dict[int, Traveller]) -> Traveller:
    from multiprocessing.reduction import DupFd

    if fd not in wrapped:
        wrapped[fd] = DupFd(fd)
    return wrapped[fd]
