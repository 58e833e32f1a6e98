"""Await shared-memory slots at spin-loop latency, without a spinning core.

queues      Queue, attach, QueueReader, QueueWriter, Handle, Statistics
slots       ReadSlot, WriteSlot, Acquire, Operation
waiting     WaitPolicy, WaitSet, wait_any, await_any, lowlevel
errors      AiospinError and its family
"""

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
from aiospin._writer import QueueWriter

Acquire = _core.Acquire
Operation = _core.Operation
ReadSlot = _core.ReadSlot
WriteSlot = _core.WriteSlot
