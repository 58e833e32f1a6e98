"""One post of a storm: what a process is told when it is started to play one or more roles.

Guarantee: travels as JSON. `Fate` kills this process in the ways in which processes die, noted in the book beforehand.
Assumption: Fate belongs to the one role of the process that plays in its main thread.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import asdict, dataclass
from types import FrameType
from typing import Any

from storm_book import DOOMED, Book
from storm_chance import Dice

import aiospin


@dataclass(frozen=True)
class Post:
    """Which roles, of which storm, for the how manieth time."""

    seed: int
    incarnation: int
    roles: tuple[int, ...]
    handles: tuple[str, ...]  # of those roles
    book: str
    log: str
    capacity: int
    backend: str
    period: float  # seconds between two looks at sleepers in event loops
    daring: int  # one operation in so many ends in the death of the process, by its own hand

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Post:
        told: dict[str, Any] = json.loads(text)
        return cls(**{**told, "roles": tuple(told["roles"]), "handles": tuple(told["handles"])})


class Fate:
    """How this process may die by its own hand in the next operation."""

    def __init__(self, book: Book, post: Post) -> None:
        self._pages = [book.page(role) for role in post.roles]
        self._daring = post.daring
        self._book = book
        self._at_once = False
        self._lines = 0

    def tempt(self, dice: Dice) -> bool:
        """Before an operation. True when death was ordered; `relent` if it did not come."""
        if not dice.one_in(self._daring) or self._book.stopping:
            return False
        for page in self._pages:
            page[DOOMED] = os.getpid()
        how = dice.below(3)
        if how == 0:
            self._at_once = True  # at `body`: while something is held
        elif how == 1:
            # The default action of SIGALRM ends a process as SIGKILL does, at any instruction, and can be timed.
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_REAL, 2e-5 + dice.moment(3e-3))
        else:
            self._lines = 1 + dice.below(dice.pick((4, 40, 400)))
            sys.settrace(self._trace)
        return True

    def body(self) -> None:
        """In the middle of an operation."""
        if self._at_once:
            os.kill(os.getpid(), signal.SIGKILL)

    def relent(self) -> None:
        """The operation is over, and we are not dead."""
        sys.settrace(None)
        signal.setitimer(signal.ITIMER_REAL, 0)
        self._at_once = False
        for page in self._pages:
            page[DOOMED] = 0

    def _trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        if not frame.f_code.co_filename.startswith(_PACKAGE):
            return None
        if event == "line":
            self._lines -= 1
            if self._lines == 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return self._trace


_PACKAGE = os.path.dirname(aiospin.__file__)
