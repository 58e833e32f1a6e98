"""The book of a storm: a file that all its processes map, in which each role writes down what it did.

What stands in it survives SIGKILL at any instruction, so the successor of a killed process, and the conductor, know
what it had received, released, published and begun. Every word has one writing process at a time and is stored at once.

Guarantee: none of aiospin's own memory is used, so the book cannot be wrong in the same way.
Assumption: 64-bit words are stored by one instruction, on this machine as on every other that aiospin runs on.
"""

from __future__ import annotations

import mmap
import os
from typing import Final

PAGE_WORDS: Final = 512
READERS: Final = 8
ROLES: Final = READERS + 1  # role 0 is the writer, role 1 + r the reader of rank r

NEVER: Final = 1 << 62

# Words of the first page, the conductor's. FINAL is the writer's.
STOP: Final = 0  # 1: the writer ends the stream, nobody dies any more
FINAL: Final = 1  # 1 + the number of messages, once the stream has ended

# Words of every role's page.
PID: Final = 0
ENDED: Final = 1  # how an incarnation ended by itself, see below
OPERATIONS: Final = 2
DOOMED: Final = 3  # the pid of a process that is about to kill itself
KILLED: Final = 4  # how many pids are listed from KILLED_PIDS on; the conductor writes
KILLED_PIDS: Final = 5
KILLED_ROOM: Final = 91
COUNTS: Final = 96  # see COUNTERS

# ENDED
AT_WORK: Final = 0
WANTS_SUCCESSOR: Final = 1
FINISHED: Final = 2

# The writer's page.
SENT: Final = 160  # messages published for sure
SENDING: Final = 161  # how many more may have been published by now
EPOCH: Final = 162  # how often a writer has begun
DROP_BEGUN: Final = 168  # for each rank
DROP_DONE: Final = 176

# A reader's page has two banks; BANK says which one holds. See storm_ledger.py.
BANK: Final = 160
BANKS: Final = (256, 384)

COUNTERS: Final = (
    "messages",
    "cancels",
    "time-outs",
    "interrupts",
    "lost fragments",
    "large",
    "redelivered",
    "views",
    "late releases",
    "forgotten",
    "moves",
    "detaches",
    "closes",
    "joins",
    "drops",
    "deaths told",
    "aborts",
    "refusals",
    "bell checks",
)


class Book:
    """Opens the book at `path`; makes it if `create`."""

    def __init__(self, path: str, *, create: bool = False) -> None:
        size = 8 * PAGE_WORDS * (1 + ROLES)
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT | os.O_EXCL if create else 0), 0o600)
        try:
            if create:
                os.ftruncate(fd, size)
            self._map = mmap.mmap(fd, size)
        finally:
            os.close(fd)
        self.words = memoryview(self._map).cast("Q")

    def close(self) -> None:
        self.words.release()
        self._map.close()

    def page(self, role: int) -> Page:
        return Page(self, role)

    @property
    def stopping(self) -> bool:
        return self.words[STOP] != 0

    @property
    def final(self) -> int | None:
        """How many messages there were, once it is known."""
        return self.words[FINAL] - 1 if self.words[FINAL] else None


class Page:
    """What one role has written."""

    def __init__(self, book: Book, role: int) -> None:
        self.book, self.role = book, role
        self._at = PAGE_WORDS * (1 + role)
        self._words = book.words

    def __getitem__(self, word: int) -> int:
        return self._words[self._at + word]

    def __setitem__(self, word: int, value: int) -> None:
        self._words[self._at + word] = value

    def count(self, what: str, many: int = 1) -> None:
        self._words[self._at + COUNTS + COUNTERS.index(what)] += many

    def counts(self) -> dict[str, int]:
        return {what: self[COUNTS + i] for i, what in enumerate(COUNTERS)}

    def list_killed(self, pid: int) -> None:
        """Before the kill: from now on the death of `pid` may be told."""
        self[KILLED_PIDS + self[KILLED] % KILLED_ROOM] = pid
        self[KILLED] += 1

    def was_killed(self, pid: int) -> bool:
        listed = range(KILLED_PIDS, KILLED_PIDS + min(self[KILLED], KILLED_ROOM))
        return self[DOOMED] == pid or any(self[word] == pid for word in listed)
