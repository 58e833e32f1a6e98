"""MessageQueue: the broadcast queue of model servers, one writer and many readers, on top of aiospin's.

Guarantee: nobody waits for the dead, or unheard. A peer's death raises PeerDied here, with the rank that the user gave
it, and again for as long as it is not replaced; a wait that becomes long is logged with everybody's ranks.
Assumption: one thread at a time receives; several may send; `shutdown` may come from any.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import weakref
from collections.abc import Generator, Iterator, Sequence
from typing import Any, Final

from aiospin._deadline import Deadline
from aiospin._errors import RoleTaken
from aiospin._queue import Queue
from aiospin._reader import QueueReader
from aiospin._writer import QueueWriter
from aiospin.compat.vllm import _groups, _settings
from aiospin.compat.vllm._handle import Handle, NoRelay, attach_reader, chunk_bytes
from aiospin.compat.vllm._loan import SLACK, Loans
from aiospin.compat.vllm._receiver import Receiver
from aiospin.compat.vllm._sender import Sender, clamped

_log = logging.getLogger("aiospin")
_READY_POLL: Final = 0.005  # seconds between two looks at who has come: start-up, not the hot path


class WrongRole(AssertionError, RuntimeError):
    """A reader was asked to write, or a writer to read."""


class MessageQueue:
    """Objects from one writer to every reader, in order, each exactly once. Who makes the queue is its writer.

    n_reader                  readers in all; those beyond `n_local_reader` would be on other hosts: NoRelay
    n_local_reader            readers through shared memory; 0 is legal, and then nothing is kept
    local_reader_ranks        their ranks, by which errors and logs call them; 0, 1, ... if not given
    max_chunk_bytes           what `acquire_write` hands out; objects may be larger
    max_chunks                the ring holds as many chunks, but no more than two: messages take the room that they need
    connect_ip                not used: nothing leaves this host
    enable_shm_tensor_arena   not used: large tensors are lent in place anyway
    capacity                  bytes of the ring, or text such as "64 MiB", for who wants another

    Objects are pickled: a message runs code in who reads it, so only processes that trust each other may share a queue.

    Calls that wait take `timeout` in seconds; None for ever, 0 or less to look once. They raise the built-in
    TimeoutError, RuntimeError("cancelled") when this end was shut down, PeerDied when somebody on the other side has
    died, QueueClosed when the writer has shut down and all was received, AssertionError on the wrong end. A call that
    raised has sent or taken nothing.
    """

    def __init__(
        self,
        n_reader: int,
        n_local_reader: int,
        local_reader_ranks: Sequence[int] | None = None,
        max_chunk_bytes: int = 24 << 20,
        max_chunks: int = 10,
        connect_ip: str | None = None,
        enable_shm_tensor_arena: bool = False,
        *,
        capacity: int | str | None = None,
    ) -> None:
        ranks = _checked_ranks(n_reader, n_local_reader, local_reader_ranks)
        _require_counts(1, max_chunk_bytes=max_chunk_bytes, max_chunks=max_chunks)
        queue: Queue[bytes] = Queue(
            readers=len(ranks),
            capacity=min(max_chunks, 2) * (max_chunk_bytes + SLACK) if capacity is None else capacity,
            policy=_settings.policy(),
            stall_after=_settings.WARNING_INTERVAL,
        )
        writer = queue.writer(threadsafe=True)
        self._begin(ranks, max_chunk_bytes, Sender(writer, ranks), None, queue)
        writer.claim()
        place = (len(ranks), max_chunk_bytes, max_chunks, str(queue.reader(0).handle)) if ranks else None
        self.handle = Handle(local_reader_ranks=ranks, buffer_handle=place)

    def _begin(
        self, ranks: list[int], chunk: int, sender: Sender | None, receiver: Receiver | None, queue: Queue[bytes] | None
    ) -> None:
        end = sender or receiver
        assert end is not None
        self.n_local_reader = len(ranks)
        self.n_remote_reader = 0
        self.local_reader_rank = -1 if end.end.rank is None else end.end.rank
        self.shutting_down = False
        self._chunk = chunk
        self._sender, self._receiver = sender, receiver
        self._ranks = end.ranks
        self._parts = (end.end, queue, None if receiver is None else receiver.loans)
        self._finalizer = weakref.finalize(self, _end, *self._parts)

    # handles

    def export_handle(self) -> Handle:
        """What readers need. It pickles, and is good for as long as this process has the queue."""
        return self.handle

    @staticmethod
    def create_from_handle(handle: Handle, rank: int) -> MessageQueue:
        """The reader of that rank, in any process of the same user. Its place is taken from now on.

        Raises AttachError that names what is wrong with the handle or out of reach, RoleTaken if a living process reads
        there, NoRelay for a rank that is not local, TypeError for a Handle of another library.
        """
        reader = attach_reader(handle, rank, policy=_settings.policy(), stall_after=_settings.WARNING_INTERVAL)
        ranks = list(handle.local_reader_ranks)
        self = MessageQueue.__new__(MessageQueue)
        self.handle = handle
        self._begin(ranks, chunk_bytes(handle), None, Receiver(reader, ranks), None)
        try:
            reader.claim()
        except RoleTaken as error:
            raise RoleTaken(self._ranks.own_name, error.pid) from None
        return self

    @staticmethod
    def create_from_process_group(
        pg: Any,
        max_chunk_bytes: int,
        max_chunks: int,
        writer_rank: int = 0,
        external_writer_handle: Handle | None = None,
        blocking: bool = True,
    ) -> MessageQueue:
        """One writer, `writer_rank` of the group, and all the others its readers. A collective call.

        `pg` is a torch ProcessGroup, or has `rank`, `world_size` and `broadcast_obj(obj, src)`. With
        `external_writer_handle`, which the writer's rank passes, the queue exists already, and the whole group reads.
        `blocking`: `wait_until_ready()`.
        """
        group = _groups.group_of(pg)
        found = _groups.hand_out(group, writer_rank, external_writer_handle)
        if isinstance(found, Handle):
            queue = MessageQueue.create_from_handle(found, group.rank)
        elif group.rank == writer_rank:
            with _groups.failing_together(group, writer_rank):
                queue = MessageQueue(len(found), len(found), found, max_chunk_bytes, max_chunks)
            group.broadcast(queue.export_handle(), writer_rank)
        else:
            queue = MessageQueue.create_from_handle(_groups.receive(group, writer_rank), group.rank)
        if blocking:
            queue.wait_until_ready()
        return queue

    @staticmethod
    def create_from_process_group_single_reader(
        pg: Any, max_chunk_bytes: int, max_chunks: int, reader_rank: int = 0, blocking: bool = False
    ) -> tuple[MessageQueue, list[Handle]]:
        """A queue of its own from each process of a torch group to one that reads them all. A collective call.

        Returns this process's queue, and in the process of `reader_rank` (a global rank) everybody's handles, in the
        order of the group; elsewhere no handles.
        """
        queue, handles = _groups.gather(
            pg, lambda: MessageQueue(1, 1, max_chunk_bytes=max_chunk_bytes, max_chunks=max_chunks), reader_rank
        )
        if blocking:
            queue.wait_until_ready()
        return queue, handles

    # life

    def __reduce__(self) -> Any:
        raise TypeError("a MessageQueue stays in its process: send its export_handle(), for create_from_handle() there")

    def wait_until_ready(self, timeout: float | None = None) -> None:
        """Wait until every reader has come. PeerDied or QueueClosed if the writer has gone meanwhile.

        A reader's process that dies before it attaches is not seen from here: TimeoutError names who has not come.
        """
        for _ in self._looks(timeout):
            time.sleep(_READY_POLL)

    async def await_until_ready(self, timeout: float | None = None) -> None:
        """`wait_until_ready` for coroutines."""
        for _ in self._looks(timeout):
            await asyncio.sleep(_READY_POLL)

    def _looks(self, timeout: float | None) -> Iterator[None]:
        """Steps as long as somebody is missing."""
        deadline = Deadline(None if timeout is None else clamped(timeout))
        began, told = time.monotonic(), _settings.WARNING_INTERVAL
        while absent := self._ranks.absent():
            if self._receiver is not None:
                self._receiver.require_a_writer()
            names = ", ".join(map(str, absent))
            deadline.check(f"readers {names} have not come")
            waited = time.monotonic() - began
            if waited >= told:
                told *= 2
                _log.warning(f"stalled: readers {names} have not come for {waited:.0f} s")
            yield

    def shutdown(self) -> None:
        """End this end. From any thread: calls that wait here raise RuntimeError("cancelled"), as all later ones do.

        Readers of a writer that was shut down receive what was sent, and then get QueueClosed; for a reader that was
        shut down nothing is kept any more. Idempotent.
        """
        self.shutting_down = True
        _end(*self._parts)
        self._finalizer.detach()

    # sending

    def enqueue(self, obj: object, timeout: float | None = None) -> None:
        """Send an object. Waits while the ring has no room for it."""
        (self._sender or self._sending()).send(obj, timeout)

    async def aenqueue(self, obj: object, timeout: float | None = None) -> None:
        """`enqueue` for coroutines. Cancelled, it has sent nothing."""
        await self._sending().asend(obj, timeout)

    @contextlib.contextmanager
    def acquire_write(self, timeout: float | None = None) -> Generator[memoryview]:
        """`max_chunk_bytes` of the ring to write a message into; sent at the end of the `with`, dropped if that raises.

        What it holds at first is anything. All of it is sent.
        """
        with self._sending().claim(self._chunk, timeout) as view:
            yield view

    def broadcast_object(self, obj: Any = None) -> Any:
        """The writer sends `obj` and returns it; a reader returns what the writer sent."""
        if self._sender is not None:
            self.enqueue(obj)
            return obj
        return self.dequeue()

    # receiving

    def dequeue(self, timeout: float | None = None, indefinite: bool = False) -> Any:
        """Receive an object. `indefinite`: a long wait is as it should be, and not logged.

        Its large buffers lie in the ring: they are the object's own to read and to write, for as long as it lives, and
        cost a copy only if it is kept for long.
        """
        return (self._receiver or self._receiving()).receive(timeout, indefinite)

    async def adequeue(self, timeout: float | None = None, indefinite: bool = False) -> Any:
        """`dequeue` for coroutines. Cancelled, it has taken nothing."""
        return await self._receiving().areceive(timeout, indefinite)

    @contextlib.contextmanager
    def acquire_read(self, timeout: float | None = None, indefinite: bool = False) -> Generator[memoryview]:
        """The next message's bytes where they lie, read-only; given back at the end of the `with`, whatever it raises.

        `max_chunk_bytes` of them for what came from `acquire_write`, as many as it has for an object.
        """
        with self._receiving().lease(timeout, indefinite) as view:
            yield view

    def _sending(self) -> Sender:
        if self._sender is None:
            raise WrongRole("only the writer can send, and this is a reader")
        return self._sender

    def _receiving(self) -> Receiver:
        if self._receiver is None:
            raise WrongRole("only readers can receive, and this is the writer")
        return self._receiver


def _end(end: QueueWriter[bytes] | QueueReader[bytes], queue: Queue[bytes] | None, loans: Loans | None) -> None:
    """Of a queue that was shut down, that nobody has any more, or whose process ends. Cut short, it may come again."""
    if loans is not None:
        loans.refuse()
    try:
        end.close()
        if queue is not None:
            queue.close()
    finally:
        if loans is not None:
            loans.recall()  # or the place would be given up with the last of them, and its holder be taken for dead


def _checked_ranks(n_reader: Any, n_local_reader: Any, ranks: Sequence[int] | None) -> list[int]:
    _require_counts(0, n_reader=n_reader, n_local_reader=n_local_reader)
    if n_local_reader > n_reader:
        raise ValueError(f"n_local_reader must be at most n_reader, {n_reader}, got {n_local_reader}")
    if n_reader > n_local_reader:
        raise NoRelay(
            f"{n_reader - n_local_reader} of {n_reader} readers would be on other hosts, and there is no relay to them"
        )
    if ranks is None:
        return list(range(n_local_reader))
    if not isinstance(ranks, Sequence) or not all(type(rank) is int for rank in ranks):
        raise TypeError(f"local_reader_ranks must be whole numbers, got {ranks!r}")
    found = list(ranks)
    if min(found, default=0) < 0:
        raise ValueError(f"local_reader_ranks must be 0 or more, got {ranks!r}")
    if len(found) != n_local_reader or len(set(found)) != len(found):
        raise ValueError(f"local_reader_ranks must be {n_local_reader} different ranks, got {ranks!r}")
    return found


def _require_counts(least: int, **counts: Any) -> None:
    for name, value in counts.items():
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(f"{name} must be a whole number, got {value!r}")
        if value < least:
            raise ValueError(f"{name} must be {least} or more, got {value}")
