"""Writer: the calls of the one writer.

Guarantee: operations of tasks go first in, first out; one call or claim has the turn at a time. Payload bytes are owned
before a call returns; a call that fails before its message is whole has published nothing that a reader will see.
Assumption: see endpoint.py for the hooks that a subclass implements.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from aiospin._errors import Full, QueueClosed, WriterBusy
from aiospin._fallback.batch import Batch, Encode, Pieces, gather, gather_many
from aiospin._fallback.endpoint import Attempt, Endpoint
from aiospin._fallback.horizon import Horizon
from aiospin._fallback.mapping import Mapping
from aiospin._fallback.operation import Acquire, Operation
from aiospin._fallback.ring import NOT_READY
from aiospin._fallback.timing import check_count, check_timeout
from aiospin._fallback.turn import Turn
from aiospin._fallback.write_slot import WriteSlot
from aiospin._fallback.writer_core import WriterCore

_SHORT_CALL = 0.1  # seconds: a call that does not wait takes microseconds


class _TurnAttempt(Attempt):
    """An attempt that needs the writer's turn, and keeps it while it is in the middle of a message."""

    __slots__ = ("_writer",)

    def __init__(self, writer: Writer, attempt: Callable[[], Any], what: str) -> None:
        super().__init__(attempt, what)
        self._writer = writer

    def __call__(self) -> Any:
        if not self.holds:
            if not self._writer._turn.try_take():
                return NOT_READY
            self.holds = True
        keep = False
        try:
            result = self._try()
            keep = self._keeps(result) or (self.parks and result is NOT_READY)
            return result
        finally:
            if not keep:
                self.finish()

    def _keeps(self, result: Any) -> bool:
        return False

    def finish(self) -> None:
        if self.holds:
            self.holds = False
            self._writer._give_turn()


class _PutAttempt(_TurnAttempt):
    __slots__ = ("_batch",)

    def __init__(self, writer: Writer, batch: Batch, what: str) -> None:
        super().__init__(writer, lambda: writer._try_push(batch), what)
        self._batch = batch

    def _keeps(self, result: Any) -> bool:
        return result is NOT_READY and self._batch.midway


class _ClaimAttempt(_TurnAttempt):
    __slots__ = ()

    def _keeps(self, result: Any) -> bool:
        if result is NOT_READY:
            return False
        self.holds = False  # the slot has it now
        return True


class Writer(Endpoint):
    """The writing end of the queue. Sizes are bytes; time-outs are seconds: None waits for ever, 0 polls once."""

    _core: WriterCore | None = None
    _encode: Encode = None
    _threadsafe: bool = False
    _turn: Turn
    _claimed: bool

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        self = super().__new__(cls, *args, **kwargs)
        self._turn = Turn()
        self._claimed = False
        return self

    # public

    def acquire_write(self, nbytes: int, timeout: float | None = None) -> Acquire:
        """A slot of `nbytes` to write in place. Nothing happens before it is awaited or entered."""
        return Acquire(self, self._claim_attempt(nbytes, "acquire_write"), check_timeout(timeout))

    def try_acquire_write(self, nbytes: int) -> WriteSlot | None:
        """A slot of `nbytes` if there is room. Never waits; WriterBusy while others wait or hold the claim."""
        attempt = self._claim_attempt(nbytes, "try_acquire_write")
        self._require()
        if not self._take_turn_briefly():
            raise self._busy()
        attempt.holds = True
        slot = attempt()
        return None if slot is NOT_READY else slot

    def put(self, *buffers: Any, timeout: float | None = None) -> None:
        """Publish one message made of the buffers. TimeoutError when there was no room in time."""
        timeout = check_timeout(timeout)
        self._require()
        pieces = gather(buffers, self._encode)
        if not self._put_at_once(pieces):
            self._wait(_PutAttempt(self, Batch([pieces]), "put"), timeout)

    def put_nowait(self, *buffers: Any) -> None:
        """Publish one message, or Full. ValueError for one that is larger than the ring: it cannot go at once."""
        self._require()
        pieces = gather(buffers, self._encode)
        size = sum(map(len, pieces))
        if not self._take_turn_briefly():
            raise Full("the writer's turn is taken: a claim is outstanding, or others wait for room")
        try:
            self._check_open()
            core = self._open_core()
            if size > core.largest:
                raise ValueError(f"a message of {size} bytes does not fit in the ring at once: use put()")
            if not core.put(pieces, size):
                self._take_failure()
                raise Full(f"the writer: no room for {size} bytes now")
        finally:
            self._give_turn()

    def put_many(self, payloads: Iterable[Any], timeout: float | None = None) -> None:
        """Publish each payload as one message, in as few steps as room allows. A time-out leaves the first ones put."""
        timeout = check_timeout(timeout)
        self._require()
        self._wait(_PutAttempt(self, Batch(gather_many(payloads, self._encode)), "put_many"), timeout)

    def put_many_nowait(self, payloads: Iterable[Any], /) -> int:
        """Publish payloads while there is room, and say how many. ValueError for one larger than the ring."""
        self._require()
        messages = gather_many(payloads, self._encode)
        if not self._take_turn_briefly():
            return 0
        try:
            self._check_open()
            core = self._open_core()
            sizes = [sum(map(len, pieces)) for pieces in messages]
            if max(sizes, default=0) > core.largest:
                raise ValueError(f"a message of {max(sizes)} bytes does not fit in the ring at once: use put()")
            for sent, (pieces, size) in enumerate(zip(messages, sizes, strict=True)):
                if not core.put(pieces, size):
                    if sent == 0:  # else what was sent must be told, and the failure to the next call
                        self._take_failure()
                    return sent
            return len(messages)
        finally:
            self._give_turn()

    def aput(self, *buffers: Any, timeout: float | None = None) -> Operation:
        """As `put`, awaited. A cancelled or timed-out wait has published nothing."""
        timeout = check_timeout(timeout)
        self._require()
        return Operation(self, _PutAttempt(self, Batch([gather(buffers, self._encode)]), "aput"), timeout)

    def aput_many(self, payloads: Iterable[Any], timeout: float | None = None) -> Operation:
        """As `put_many`, awaited."""
        timeout = check_timeout(timeout)
        self._require()
        batch = Batch(gather_many(payloads, self._encode))
        return Operation(self, _PutAttempt(self, batch, "aput_many"), timeout)

    # for the layer above

    @property
    def _cursor(self) -> int:
        return 0 if self._core is None else self._core.cursor

    @property
    def _sequence(self) -> int:
        return 0 if self._core is None else self._core.sequence

    def _open(
        self,
        mapping: Mapping,
        bell: int,
        reader_bells: Sequence[int],
        horizon: Horizon,
        encode: Encode,
        checksum: bool,
        threadsafe: bool,
        anchor: object = None,
    ) -> None:
        """Take over from what the journal says. The caller calls `_ring_all` afterwards.

        It has locked the role, and keeps it locked for as long as `anchor` lives: this endpoint lets go of it when it
        is shut and no claim is outstanding.
        """
        self._core = WriterCore(mapping, bell, reader_bells, checksum, anchor)
        self._encode = encode
        self._threadsafe = threadsafe
        self._opened_on(mapping, bell)

    def _ready(self) -> bool:
        """There is room for what last found none, or an error to raise."""
        core = self._core
        if core is None:
            return self._shut_down
        return self._failure is not None or core.shutdown() != 0 or core.room_now()

    def _announce(self) -> bool:
        """Say how much room is needed and that the writer is about to sleep, then look again: True if it need not."""
        core = self._core
        if core is None:
            return True
        self._parks += 1
        core.announce()
        return self._ready()

    def _ring_all(self) -> None:
        """Confirm every rank that wants to join, and ring every reader."""
        if self._core is not None:
            self._core.ring_all()

    def _drop(self, rank: int) -> None:
        """Stop waiting for a rank; its next use raises ReaderDropped."""
        self._open_core().drop(rank)

    # attempts

    def _check_open(self) -> None:
        if self._open_core().shutdown():
            raise QueueClosed("the writer: the queue was shut down")

    def _put_at_once(self, pieces: Pieces) -> bool:
        """The common case, without an attempt object: open, our turn, room. False says to go the long way."""
        core = self._core
        if core is None or self._queued or core.shutdown() or not self._turn.try_take():
            return False
        try:
            size = sum(map(len, pieces))
            if size > core.largest or not core.put(pieces, size):
                return False
            self._at_once += 1
            return True
        finally:
            self._give_turn()

    def _take_turn_briefly(self) -> bool:
        """Take the turn unless somebody keeps it: another thread's short call is waited out when we serialise."""
        if self._threadsafe:
            if self._turn.try_take():
                return True
            return not (self._claimed or self._waiter or self._turn.mine()) and self._turn.take(_SHORT_CALL)
        return not self._queued and self._turn.try_take()

    def _claim_attempt(self, nbytes: int, what: str) -> _TurnAttempt:
        size = check_count("nbytes", nbytes, 0)
        return _ClaimAttempt(self, lambda: self._try_claim(size), what)

    def _try_push(self, batch: Batch) -> Any:
        self._check_open()
        if self._open_core().push(batch):
            return None
        self._take_failure()
        return NOT_READY

    def _try_claim(self, nbytes: int) -> Any:
        self._check_open()
        core = self._open_core()
        if nbytes <= core.largest and not core.claim_room(nbytes):
            self._take_failure()
            return NOT_READY
        slot = WriteSlot(self, core, nbytes)
        self._claimed = core.claimed = True
        return slot

    def _push_claimed(self, batch: Batch) -> None:
        """Push an oversized slot's message through the ring; the slot has the turn until that is done."""
        super()._wait(Attempt(lambda: self._try_push(batch), "publish"), None)

    def _push_async(self, batch: Batch) -> Operation:
        """The same once the claim has ended: it takes its place in the line."""
        return Operation(self, _PutAttempt(self, batch, "publish"), None)

    def _end_claim(self, core: WriterCore) -> None:
        self._claimed = False
        core.end_claim()
        self._give_turn()

    def _give_turn(self) -> None:
        self._turn.give()
        if self._queued and self._opened:
            self._kick()

    def _open_core(self) -> WriterCore:
        if self._core is None:
            self._require()
        assert self._core is not None
        return self._core

    # endpoint

    def _wait(self, attempt: Attempt, timeout: float | None, begun: float | None = None) -> Any:
        self._require()
        begun = time.monotonic() if self._threadsafe else None
        if not self._threadsafe:
            if self._queued or not self._turn.try_take():
                raise self._busy()
        elif self._turn.mine():
            raise WriterBusy("this thread holds the writer's claim: publish or abort it first")
        elif not self._turn.take(timeout):
            raise self._late(timeout)
        attempt.holds = attempt.parks = True
        return super()._wait(attempt, timeout, begun)

    @property
    def role_name(self) -> str:
        return "writer"

    def _busy(self) -> WriterBusy:
        return WriterBusy("another task or thread is waiting on the writer, or holds its claim")

    def _late(self, timeout: float | None) -> TimeoutError:
        return TimeoutError(f"writer: no room within {timeout!r} s")

    def _drop_core(self) -> None:
        core, self._core = self._core, None
        if core is not None:
            core.detach()

    def _forget_core(self) -> None:
        if self._core is not None:
            self._core.forget()

    def _core_counters(self) -> dict[str, int]:
        return {} if self._core is None else self._core.counters()

    def _line_up(self, waiter: object) -> None:
        if not isinstance(waiter, Operation):  # a thread, which has the turn; operations are queued by the layer above
            self._waiter["one"] = waiter

    def _step_out(self, waiter: object) -> None:
        if not isinstance(waiter, Operation):
            self._waiter.pop("one", None)

    def _must_wait(self, attempt: Attempt) -> bool:
        return not attempt.holds and (self._queued > 0 or self._turn.taken())
