"""Handle: what a process needs to read a queue that another one has made, as plain values that pickle.

Guarantee: attaching raises what is wrong, at once: TypeError for what is no Handle of this package, AttachError for a
queue that is gone or out of reach, NoRelay for a reader on another host.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from aiospin import _layout
from aiospin._errors import AiospinError, AttachError
from aiospin._handle import Handle as EndHandle
from aiospin._queue import attach
from aiospin._reader import QueueReader


class NoRelay(AiospinError):
    """A reader would be on another host, and messages do not leave this one."""


@dataclass
class Handle:
    """Made by `MessageQueue.export_handle()`; goes to readers through pickle.

    local_reader_ranks     the ranks that read through shared memory, in the order of their places
    buffer_handle          readers, max_chunk_bytes, max_chunks, the text that finds the segment; None if nobody reads
    local_subscribe_addr   None: there is no socket beside the ring
    local_notify_addr      None, likewise: wake-ups are in shared memory
    remote_subscribe_addr  None until there is a relay to other hosts
    remote_addr_ipv6       False, likewise
    tensor_arena_handle    None: large tensors are in the ring
    """

    local_reader_ranks: list[int] = field(default_factory=list[int])
    buffer_handle: tuple[int, int, int, str] | None = None
    local_subscribe_addr: str | None = None
    local_notify_addr: str | None = None
    remote_subscribe_addr: str | None = None
    remote_addr_ipv6: bool = False
    tensor_arena_handle: tuple[int, int, int, str] | None = None


def chunk_bytes(handle: Handle) -> int:
    """The max_chunk_bytes of the queue."""
    return 0 if handle.buffer_handle is None else handle.buffer_handle[1]


def require_handle(handle: Any) -> Handle:
    """The handle. TypeError for anything else."""
    if not isinstance(handle, Handle):
        raise TypeError(f"a handle of aiospin.compat.vllm is needed, got {handle!r}")
    return handle


def attach_reader(handle: Any, rank: Any, **options: Any) -> QueueReader[Any]:
    """The end of that rank, unclaimed. Raises as the module says."""
    require_handle(handle)
    if rank not in handle.local_reader_ranks:
        ranks = ", ".join(map(str, handle.local_reader_ranks)) or "none"
        raise NoRelay(f"rank {rank!r} is not among the local readers ({ranks}), and there is no relay to other hosts")
    place: Any = handle.buffer_handle
    try:
        _, chunk, _, text = place
    except (TypeError, ValueError):
        chunk = text = None
    if not isinstance(chunk, int) or not isinstance(text, str):
        raise AttachError(f"{handle!r} names no segment")
    role = _layout.reader_role(handle.local_reader_ranks.index(rank))
    found = EndHandle.parse(text)
    # So that small messages, which are pickles, are decoded on the way.
    reader = attach(dataclasses.replace(found, role=role, codec="pickle"), **options)
    assert isinstance(reader, QueueReader)
    return reader
