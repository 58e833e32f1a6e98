"""Who this process is among the workers of its group."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Place:
    """A worker's rank, and the size of its group."""

    rank: int
    size: int


_here: Place | None = None


def take(place: Place | None) -> None:
    """This process is that worker from now on."""
    global _here
    _here = place


def current_worker() -> Place | None:
    """In a worker, from its constructor on: which one it is. None in any other process.

    For objects that do a part of the work each, such as the shards of a model.
    """
    return _here
