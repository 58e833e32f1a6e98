"""Await shared-memory slots at spin-loop latency, without a spinning core.

queues      Queue, attach, QueueReader, QueueWriter, Handle, Statistics
slots       ReadSlot, WriteSlot, Acquire, Operation
waiting     WaitPolicy, WaitSet, wait_any, await_any, lowlevel
errors      AiospinError and its family
"""

from aiospin import lowlevel
from aiospin._backend import core as _core
from aiospin._backend import name as backend
from aiospin._backend import rung
from aiospin._errors import (
    AiospinError,
    AttachError,
    BlockingInEventLoopWarning,
    CorruptSlot,
    Empty,
    ForkedUse,
    FragmentLost,
    Full,
    LayoutMismatch,
    PeerDied,
    QueueClosed,
    ReaderBusy,
    ReaderDropped,
    RoleTaken,
    SegmentTooLarge,
    UnsupportedPlatform,
    WriterBusy,
)
from aiospin._handle import Handle
from aiospin._policy import WaitPolicy
from aiospin._queue import Queue, attach
from aiospin._reader import QueueReader
from aiospin._statistics import Statistics
from aiospin._waitset import WaitSet, await_any, wait_any
from aiospin._writer import QueueWriter

Acquire = _core.Acquire
Operation = _core.Operation
ReadSlot = _core.ReadSlot
WriteSlot = _core.WriteSlot

__version__ = "0.1.0"

__all__ = [
    "Acquire",
    "AiospinError",
    "AttachError",
    "BlockingInEventLoopWarning",
    "CorruptSlot",
    "Empty",
    "ForkedUse",
    "FragmentLost",
    "Full",
    "Handle",
    "LayoutMismatch",
    "Operation",
    "PeerDied",
    "Queue",
    "QueueClosed",
    "QueueReader",
    "QueueWriter",
    "ReadSlot",
    "ReaderBusy",
    "ReaderDropped",
    "RoleTaken",
    "SegmentTooLarge",
    "Statistics",
    "UnsupportedPlatform",
    "WaitPolicy",
    "WaitSet",
    "WriteSlot",
    "WriterBusy",
    "__version__",
    "attach",
    "await_any",
    "backend",
    "lowlevel",
    "rung",
    "wait_any",
]
