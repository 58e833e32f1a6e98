"""Every error that aiospin raises on purpose, and nothing else.

Guarantee: all of them derive from AiospinError, say who did what with which value, and survive pickling, so that a
worker's error can travel to the process that started it.
Assumption: none; this file imports only the standard library and is the lowest of the package.
"""

from __future__ import annotations

import asyncio
import os
import queue
import sys
from typing import Literal

__all__ = [
    "AiospinError",
    "AttachError",
    "BlockingInEventLoopWarning",
    "CorruptSlot",
    "Empty",
    "ForkedUse",
    "FragmentLost",
    "Full",
    "LayoutMismatch",
    "PeerDied",
    "QueueClosed",
    "ReaderBusy",
    "ReaderDropped",
    "RoleTaken",
    "SegmentTooLarge",
    "UnsupportedPlatform",
    "WriterBusy",
]


class AiospinError(Exception):
    """The base of every error of this package."""


if sys.version_info >= (3, 13):

    class QueueClosed(AiospinError, asyncio.QueueShutDown, queue.ShutDown):
        """The stream has ended, or the endpoint was closed: nothing will come, nothing can be sent."""

else:

    class QueueClosed(AiospinError):
        """The stream has ended, or the endpoint was closed: nothing will come, nothing can be sent."""


class Full(AiospinError, queue.Full, asyncio.QueueFull):
    """There is no room now, and the call was asked not to wait."""


class Empty(AiospinError, queue.Empty, asyncio.QueueEmpty):
    """There is no message now, and the call was asked not to wait."""


class PeerDied(AiospinError):
    """The process at the other side died without leaving. Raised once per death; waiting again waits for a successor.

    `rank` is the reader's rank, or None when it was the writer; `pid` is 0 when it lived in another PID namespace.
    `noticed` tells how: by a "pidfd", at once, or by the "lock" of its role, which is looked at once a second.
    """

    def __init__(self, rank: int | None, pid: int, noticed: Literal["pidfd", "lock"] = "lock") -> None:
        super().__init__(rank, pid, noticed)
        self.rank = rank
        self.pid = pid
        self.noticed: Literal["pidfd", "lock"] = noticed

    def __str__(self) -> str:
        who = "the writer" if self.rank is None else f"reader {self.rank}"
        return f"{who} ({_name_pid(self.pid)}) died without closing its end"


class RoleTaken(AiospinError):
    """The role has a living holder. `pid` is 0 when that one lives in another PID namespace."""

    def __init__(self, role_name: str, pid: int) -> None:
        super().__init__(role_name, pid)
        self.role_name = role_name
        self.pid = pid

    def __str__(self) -> str:
        ours = ", this process: an end of it was not closed" if self.pid == os.getpid() else ""
        return f"the role of {self.role_name} is held by {_name_pid(self.pid)}{ours}"


class ReaderDropped(AiospinError):
    """The writer dropped this reader: slots it had not released may have been overwritten."""


class ReaderBusy(AiospinError):
    """Another task or thread is waiting on this reader."""


class WriterBusy(AiospinError):
    """Another task or thread is waiting on this writer, or holds its claim."""


class ForkedUse(AiospinError):
    """The endpoint was claimed before a fork and belongs to the parent."""


class CorruptSlot(AiospinError):
    """What the shared memory says cannot be true: a peer wrote where it must not."""


class FragmentLost(AiospinError):
    """A reader took over in the middle of a large message, whose beginning went with its predecessor."""


class AttachError(AiospinError):
    """The segment that a handle names cannot be used from here. The message names the segment and the reason."""


class LayoutMismatch(AttachError):
    """The segment, or the handle, was made by a version of aiospin that draws the bytes differently."""

    def __init__(self, what: str, found: int, supported: int) -> None:
        super().__init__(what, found, supported)
        self.what = what
        self.found = found
        self.supported = supported

    def __str__(self) -> str:
        return f"{self.what} has layout version {self.found}; this aiospin reads version {self.supported}"


class SegmentTooLarge(AiospinError):
    """The segment does not fit in what the machine, the container or the file system allows. Sizes are in bytes."""

    def __init__(self, size: int, limit: int, source: str) -> None:
        super().__init__(size, limit, source)
        self.size = size
        self.limit = limit
        self.source = source

    def __str__(self) -> str:
        return f"a segment of {self.size} bytes exceeds the limit of {self.limit} bytes ({self.source})"


class UnsupportedPlatform(AiospinError):
    """aiospin needs Linux on a 64-bit little-endian machine."""


class BlockingInEventLoopWarning(RuntimeWarning):
    """A blocking call waited in a thread whose event loop is running: every other task of the loop stood still."""


def _name_pid(pid: int) -> str:
    return f"pid {pid}" if pid > 0 else "a process in another PID namespace"
