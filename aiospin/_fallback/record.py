"""What a reader remembers of a slot that it has taken from the ring.

Guarantee: a record gives the ring bytes [start, end) back once, however many objects ask for it.
Assumption: only the core that made it changes it, under its lock.
"""

from __future__ import annotations

from typing import Protocol


class Owner(Protocol):
    """Whoever a record goes back to."""

    def give(self, record: Record) -> None: ...


class Record:
    """One slot. `private` holds the bytes of a message that came in fragments; else they lie in the ring at `at`."""

    __slots__ = (
        "at",
        "back",
        "done",
        "end",
        "left",
        "out",
        "owner",
        "private",
        "redelivered",
        "sequence",
        "size",
        "start",
    )

    def __init__(
        self, owner: Owner, start: int, end: int, sequence: int, at: int, size: int, redelivered: bool
    ) -> None:
        self.owner = owner
        self.start = start
        self.end = end
        self.sequence = sequence
        self.at = at  # of the payload, in the doubled ring
        self.size = size
        self.redelivered = redelivered
        self.private: bytearray | None = None
        self.back = False  # hand it out again instead of releasing it
        self.out = False  # lent out: whoever has it gives it back
        self.done = False  # the bytes are free
        self.left = False  # its slot is gone, views are not
