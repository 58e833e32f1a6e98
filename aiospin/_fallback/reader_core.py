"""The reader's side of the ring: take the next message, give bytes back, wake a writer that waits for room.

Guarantee: nothing here waits. A message is taken in full or not at all; its bytes stay put until its record is given
back; the released cursor moves past the oldest run of returned records only.
Assumption: one live core per rank (the role's lock). Records come back from any thread, and from the garbage collector
in the middle of any line: they queue up in `_returns`, and whoever holds the lock applies them.
"""

from __future__ import annotations

import collections
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from aiospin import _pages
from aiospin._errors import CorruptSlot, FragmentLost, ReaderBusy
from aiospin._fallback import bell
from aiospin._fallback.mapping import Mapping
from aiospin._fallback.record import Record
from aiospin._fallback.ring import (
    HEADER,
    HEADER_BYTES,
    NOT_READY,
    Outcome,
    WriterWords,
    check_bytes,
    check_extent,
    check_published,
)

T = TypeVar("T")

_WORD = (1 << 64) - 1
_BUSY_AFTER = 1.0  # seconds: the lock is held for microseconds, unless a signal handler interrupted its own thread


class ReaderCore:
    """One rank's protocol state. Attributes without underscore are read by the endpoint and its slots."""

    def __init__(
        self, mapping: Mapping, rank: int, own_bell: int, writer_bell: int, checksum: bool, anchor: object
    ) -> None:
        self._words = words = mapping.words
        self._ring = mapping.ring
        self._capacity = mapping.capacity
        self._all = WriterWords(mapping.readers)
        self._mine = mine = self._all.ranks[rank]
        self.lessor = mapping.lessor()
        self.live = True  # may store to the segment and ring bells
        self._closing = False
        self._anchor: object = anchor  # what keeps the role while bytes are lent out
        self.own_bell = own_bell
        self._writer_bell = writer_bell
        self._checksum = checksum
        self._lock = threading.Lock()
        self._inside = False  # somebody takes; locked without it: a signal's exception came just after the locking
        self._returns: collections.deque[Record] = collections.deque()
        self._held: collections.deque[Record] = (
            collections.deque()
        )  # oldest first: handed out, or waiting for older ones
        self._pending: list[Record] = []  # came back untouched, oldest first
        self._partial: bytearray | None = None
        self._partial_total = 0
        self._expected: int | None = None  # sequence number; the first slot sets it
        self._skipping = False  # until a message begins
        self._room_rung = 0  # the writer's park epoch that was rung for
        self._room_seen = 0  # the one that was found short of room with a fence behind this rank's release
        self.rings = 0
        self.messages = 0
        self._unsettled = False  # a take has begun and not ended
        self.views = 0
        self.released = 0
        self._midway_is_loss = False
        self._stay = self._wish_to_stay(mapping)
        self.joined = words[mine.gate] == self._stay
        self.cursor = 0
        self._acquired = words[mine.acquired]
        if self.joined:
            self._settle_in()
        else:
            mapping.add(mine.epoch * 8, 1)  # as if parked: the next publish confirms

    # joining and leaving

    def _wish_to_stay(self, mapping: Mapping) -> int:
        mine, words = self._mine, self._words
        stay: int = words[mine.stay]
        if stay & 1 or words[mine.gate] == stay | 1:
            mapping.store(mine.stay * 8, (stay | 1) + 1 & _WORD)  # wraps where a scribble has left it at the end
        return words[mine.stay]

    def _settle_in(self) -> None:
        words, mine = self._words, self._mine
        released, start = words[mine.released], words[mine.start]
        self.joined = True
        self.cursor = self.released = max(released, start)
        self._midway_is_loss = released > start

    def confirmed(self) -> bool:
        """The writer waits for this rank."""
        if not self.joined and self._words[self._mine.gate] == self._stay:
            self._settle_in()
        return self.joined

    def dropped(self) -> bool:
        """The writer no longer waits for this rank: it may have overwritten what was not released."""
        return self._words[self._mine.gate] == self._stay | 1

    def detach(self) -> None:
        """Hand nothing out any more. The role is kept until the last lease is back; then nothing here touches the
        segment or a bell. Idempotent."""
        self._closing = True
        self.own_bell = -1
        if self.leases == 0:
            self.forget()

    def forget(self) -> None:
        """Let go of the role now; what is leased stays readable. Idempotent."""
        self.live = False
        self.own_bell = self._writer_bell = -1
        self._anchor = None

    # looking

    @property
    def leases(self) -> int:
        """How many slots, or views of slots that were left, hold bytes now."""
        return sum(record.out and not record.done for record in tuple(self._held))

    @property
    def next_position(self) -> int:
        """Where the next slot to be handed out begins."""
        return self._pending[0].start if self._pending else self.cursor

    @property
    def next_sequence(self) -> int:
        """Number of the message that comes next; -1 before the first one."""
        return -1 if self._expected is None else self._expected

    def any_ready(self) -> bool:
        """There is a slot, or a fragment, or an error about one, to take."""
        return bool(self._pending) or (self.confirmed() and self._words[self._all.published] != self.cursor)

    def shutdown(self) -> int:
        """What the owner asked for: 0 open, 1 drain, 2 end at once."""
        return self._words[self._all.shutdown]

    def ended(self) -> bool:
        """Nothing will be published after what is there now. Look at the ring again after a True."""
        return bool(self._words[self._all.shutdown] or self._words[self._all.closed])

    def announce(self, mapping: Mapping) -> None:
        """Store a new park epoch, then a barrier: a publish from here on either is seen by the next look or rings."""
        mapping.add(self._mine.epoch * 8, 1)

    # taking

    def _enter(self) -> None:
        lock = self._lock
        if not lock.acquire(False) and not lock.acquire(timeout=_BUSY_AFTER) and self._inside:
            raise ReaderBusy(f"reader {self._mine.rank} is in use by the code that this call interrupted")
        self._inside = True

    def _exit(self) -> None:
        self._lock.release()
        if self._returns:
            self.settle()

    def take_record(self, lend: Callable[[ReaderCore, Record], T]) -> T | Outcome:
        """Lend the next message out: `lend` makes what holds its record, sets `out` on it, and will give it back."""
        self._enter()
        try:
            if self._unsettled:
                self._recover()
            self._unsettled = True
            record = self._next()
            if record is None:
                self._unsettled = False
                return NOT_READY
            self._note_acquired(record)
            lent = lend(self, record)
            self.messages += 1
            self._unsettled = False
            return lent
        finally:
            self._inside = False
            self._exit()

    def take_many(self, most: int) -> list[bytes] | Outcome:
        """Copy up to `most` messages out and release them at once."""
        taken: list[bytes] = []
        records: list[Record] = []
        self._enter()
        try:
            if self._unsettled:
                self._recover()
            self._unsettled = True
            while len(taken) < most:
                try:
                    record = self._next()
                except (CorruptSlot, FragmentLost):
                    if taken and not self.dropped():
                        break  # the next attempt says so
                    raise
                if record is None:
                    break
                taken.append(self.copy(record))
                records.append(record)
            if taken:
                self._note_acquired(records[-1])  # an older slot that is held keeps them in the ring, for a successor
                for record in records:
                    record.done = True
                self.messages += len(taken)
                self._sweep()
            self._unsettled = False
            return taken or NOT_READY
        finally:
            self._inside = False
            self._exit()

    def _note_acquired(self, record: Record) -> None:
        """Before it is handed out: should this process die, a successor marks all up to here as redelivered."""
        if record.end > self._acquired:
            self._acquired = self._words[self._mine.acquired] = record.end

    def _recover(self) -> None:
        """After an exception cut a take short (Ctrl-C, no memory): whatever nobody has got comes next."""
        held = self._held
        if held:
            self.cursor = max(self.cursor, held[-1].end)
        self._pending = [record for record in held if not record.done and not record.out]
        self._unsettled = False

    def take_one(self) -> bytes | Outcome:
        """Copy one message out and release it."""
        taken = self.take_many(1)
        return NOT_READY if taken is NOT_READY else taken[0]

    def _next(self) -> Record | None:
        """With the lock: the next whole message, now in `_held`; fragments on the way are copied and released."""
        if self._pending:
            return self._pending.pop(0)
        while self.confirmed():
            start, capacity = self.cursor, self._capacity
            published = self._words[self._all.published]
            if published == start:
                return None
            check_published(published, start, capacity)
            at = start % capacity
            sequence, total, offset, size, _flags, checksum = HEADER.unpack_from(self._ring, at)
            end = check_extent(start, size, offset, total, published, capacity)
            at += HEADER_BYTES
            if self._checksum:
                check_bytes(start, checksum, self._ring[at : at + size])
            if offset:
                if not self._continues(start, sequence, total, offset):
                    self._pass_over(start, end, sequence, last=offset + size == total)
                    continue
            elif self._expected is not None and sequence != self._expected:
                raise CorruptSlot(f"slot at {start} has sequence {sequence}; {self._expected} comes next")
            self._skipping = False
            record = Record(self, start, end, sequence, at, size, start < self._acquired)
            if size == total:
                self._partial = None
            else:
                self._collect(record, total, offset)
            last = offset + size == total
            self._expected = sequence + last
            self.cursor = end
            self._held.append(record)
            if last:
                return record
            record.done = True
            self._sweep()
        return None

    # fragments

    def _continues(self, start: int, sequence: int, total: int, offset: int) -> bool:
        """True if the fragment goes on with the partial message; False if it is to be passed over."""
        partial = self._partial
        if partial is not None:
            if sequence != self._expected or total != self._partial_total or offset != len(partial):
                raise CorruptSlot(
                    f"fragment at {start} (message {sequence}, byte {offset} of {total}) does not go on from message "
                    f"{self._expected}, byte {len(partial)} of {self._partial_total}"
                )
            return True
        if not self._skipping and self._expected is not None:
            raise CorruptSlot(f"fragment at {start} (message {sequence}, byte {offset} of {total}) has no beginning")
        return False

    def _collect(self, record: Record, total: int, offset: int) -> None:
        if offset == 0:
            self._partial, self._partial_total = bytearray(), total
        partial = self._partial
        assert partial is not None
        partial += self._ring[record.at : record.at + record.size]
        if len(partial) == total:
            record.private, record.size = partial, total
            self._partial = None

    def _pass_over(self, start: int, end: int, sequence: int, last: bool) -> None:
        first = not self._skipping
        self._skipping = True
        self._expected = sequence + last
        self.cursor = end
        record = Record(self, start, end, sequence, 0, 0, False)
        record.done = True
        self._held.append(record)
        self._sweep()
        if first and self._midway_is_loss:
            raise FragmentLost(f"message {sequence} began before this reader took over at byte {start}: it is lost")

    # giving back

    def give(self, record: Record) -> None:
        """Take a record back, from any thread and from a finalizer. Never waits, never raises."""
        self._returns.append(record)
        self.settle()

    def settle(self) -> None:
        """Apply what came back, unless another thread or an interrupted frame holds the lock: then that one will."""
        while self._returns and self._lock.acquire(False):
            try:
                self._apply_returns()
            finally:
                self._lock.release()
        if self._closing and self.leases == 0:
            self.forget()

    def _apply_returns(self) -> None:
        while self._returns:
            record = self._returns.popleft()
            self.views -= record.left
            if record.back:
                record.back = record.out = False
                self.messages -= 1
                self._pending = [waiting for waiting in self._held if not waiting.done and not waiting.out]
                if self.live and self.own_bell >= 0:
                    bell.ring(self.own_bell)  # somebody may be waiting already
            else:
                record.done = True
        if self.live:
            self._sweep()

    def _sweep(self) -> None:
        held = self._held
        released = self.released
        while held and held[0].done:
            released = held.popleft().end
        if released != self.released:
            self.released = self._words[self._mine.released] = released
            epoch = self._words[self._all.epoch]
            if epoch != self._room_rung:
                self._wake_writer(epoch)

    def _wake_writer(self, epoch: int) -> None:
        """Ring if every gating rank is past what the writer needs. The last one to cross must not miss that it is.

        Two ranks whose stores are both still in their store buffers would each see the other one short, and neither
        would ring. So whoever has crossed and sees another one short looks again behind a barrier, once an epoch.
        """
        needed = self._words[self._all.needed]
        if self.released < needed:
            return
        if not self._all_past(needed):
            if self._room_seen == epoch:
                return
            _pages.barrier()
            if not self._all_past(needed):
                self._room_seen = epoch
                return
        bell.ring(self._writer_bell)
        self.rings += 1
        self._room_rung = epoch

    def _all_past(self, needed: int) -> bool:
        words = self._words
        return all(rank.position(words) >= needed for rank in self._all.ranks if rank.gates(words))

    # counting

    def counters(self) -> dict[str, int]:
        """What the endpoint reports of its core."""
        return {"rings": self.rings, "messages": self.messages, "leases": self.leases, "views": self.views}

    def copy(self, record: Record) -> bytes:
        """The record's bytes, owned by the caller."""
        private = record.private
        return bytes(self._ring[record.at : record.at + record.size] if private is None else private)

    def copy_writable(self, record: Record) -> bytearray:
        """As `copy`, of a record that lies in the ring."""
        return bytearray(self._ring[record.at : record.at + record.size])

    def payload(self, record: Record) -> Any:
        """A lease on the record's bytes."""
        if record.private is not None:
            return self.lessor.private_bytes(record, record.private)
        return self.lessor.ring_bytes(record, record.at)
