"""The writer's side of the ring: find room, write, publish, wake readers, confirm the ones that join.

Guarantee: nothing here waits. A message becomes visible whole (or one fragment at a time, in order), and the journal
lets a successor go on at any kill. A published byte is overwritten only when every gating rank has released it.
Assumption: one live core per segment (the role's lock), used by one thread at a time (the endpoint's turn); only
`ring_all` and `drop` may come from another thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from aiospin import _layout
from aiospin._errors import CorruptSlot
from aiospin._fallback import bell
from aiospin._fallback.batch import Batch, Pieces
from aiospin._fallback.crc import crc32c
from aiospin._fallback.mapping import Mapping
from aiospin._fallback.ring import HEADER, HEADER_BYTES, NO_LIMIT, RankWords, WriterWords

_JOURNAL_WORDS = _layout.JOURNAL_ENTRY.size >> 3
_FRAGMENTS_PER_RING = 4


class WriterCore:
    """The writer's protocol state. `cursor` is the next position, `sequence` the next message's number."""

    def __init__(
        self, mapping: Mapping, own_bell: int, reader_bells: Sequence[int], checksum: bool, anchor: object
    ) -> None:
        self._mapping = mapping
        self._words = words = mapping.words
        self.ring = mapping.writable_ring()
        self._capacity = capacity = mapping.capacity
        self._at = WriterWords(mapping.readers)
        self.live = True
        self.claimed = False  # a slot at the cursor is lent out
        self._anchor: object = anchor  # what keeps the role while it is
        self.own_bell = own_bell
        self._bells = tuple(reader_bells)
        self._checksum = checksum
        self._confirming = threading.Lock()
        self._rung = [0] * mapping.readers
        self._ranks = tuple((rank.epoch, rank) for rank in self._at.ranks)
        self.largest = capacity - HEADER_BYTES  # payload of one slot
        self._fragment = capacity // _FRAGMENTS_PER_RING - HEADER_BYTES
        self._limit = 0  # a slot may end here; only grows stale by being too low
        self.need = 0  # where the slot that found no room would have ended; 0 when none is waiting
        self.rings = 0
        self.messages = 0
        self.cursor = words[self._at.published]
        self.sequence = self._take_over()
        words[self._at.closed] = 0

    def _take_over(self) -> int:
        """The number of the next message, from the journal entry that belongs to the published cursor."""
        possible = self.cursor % _layout.SLOT_ALIGN == 0 and self.cursor < _layout.FARTHEST
        for entry in range(_layout.JOURNAL_ENTRIES):
            index = self._at.journal + entry * _JOURNAL_WORDS
            sequence: int = self._words[index + 1]
            if possible and self._words[index] == self.cursor and sequence < _layout.FARTHEST:
                # The other one is overwritten first: until W moves, this one must stay whole.
                self._next_entry = self._at.journal + (1 - entry) * _JOURNAL_WORDS
                return sequence
        raise CorruptSlot(f"no journal entry belongs to the published cursor {self.cursor}")

    def detach(self) -> None:
        """Stop touching the segment and the bells; the role is kept until the claim has ended. Idempotent."""
        self.live = False
        self.own_bell = -1
        self._bells = ()
        if not self.claimed:
            self._anchor = None

    def forget(self) -> None:
        """Let go of the role now. Idempotent."""
        self.claimed = False
        self.detach()

    def end_claim(self) -> None:
        """The slot that was lent out is back."""
        self.claimed = False
        if not self.live:
            self._anchor = None

    def shutdown(self) -> int:
        """What the owner asked for: 0 open, 1 drain, 2 end at once."""
        return self._words[self._at.shutdown]

    # room

    def room_for(self, end: int) -> bool:
        """A slot may end at `end` now. If not, `need` remembers it."""
        if end <= self._limit or end <= self._look():
            self.need = 0
            return True
        self.need = end
        return False

    def claim_room(self, size: int) -> bool:
        """There is room for a slot of `size` payload bytes at the cursor."""
        return self.room_for(self.cursor + _layout.stride(size))

    def room_now(self) -> bool:
        """There is room for what last found none."""
        return self.need <= self._limit or self.need <= self._look()

    def _look(self) -> int:
        """Read every gating rank's released cursor; returns where a slot may end."""
        words, cursor = self._words, self.cursor
        lowest = NO_LIMIT
        for rank in self._at.ranks:
            if rank.gates(words):
                position = rank.position(words)
                if not cursor - self._capacity <= position <= cursor:
                    raise CorruptSlot(
                        f"reader {rank.rank} says it released up to {position}; the writer is at {cursor} of a ring "
                        f"of {self._capacity} bytes"
                    )
                lowest = min(lowest, position)
        self._limit = lowest if lowest == NO_LIMIT else lowest + self._capacity
        return self._limit

    def announce(self) -> None:
        """Say which position is needed, then that the writer is about to sleep; a barrier follows."""
        self._words[self._at.needed] = max(0, self.need - self._capacity)
        self._mapping.add(self._at.epoch * 8, 1)

    # publishing

    def put(self, pieces: Pieces, size: int) -> bool:
        """Publish one message that fits in one slot. False, and `need` is set, when there is no room."""
        end = self.cursor + _layout.stride(size)
        if not self.room_for(end):
            return False
        self._write(self.cursor, self.sequence, size, 0, size, pieces)
        self._publish(end, self.sequence + 1, 1)
        return True

    def push(self, batch: Batch) -> bool:
        """Publish as much of the batch as there is room for, with one store of W. True when nothing is left."""
        end, sequence, at = self.cursor, self.sequence, batch.at
        sizes = batch.sizes
        offset = batch.offset
        while at < len(sizes):
            size = sizes[at]
            part = size if size <= self.largest else min(self._fragment, size - offset)
            stop = end + _layout.stride(part)
            if not self.room_for(stop):
                break
            if part == size:
                self._write(end, sequence, size, 0, size, batch.messages[at])
            else:
                batch.at, batch.offset = at, offset
                self._write(end, sequence, size, offset, part, (batch.fragment(part),))
            end, offset = stop, offset + part
            if offset == size:
                at, sequence, offset = at + 1, sequence + 1, 0
        batch.at, batch.offset = at, offset
        if end != self.cursor:
            self._publish(end, sequence, sequence - self.sequence)
        return at == len(sizes)

    def publish_claim(self, size: int) -> None:
        """Publish the claimed slot at the cursor, whose payload is in place; room for it was found by the claim."""
        self._header(self.cursor % self._capacity, self.sequence, size, 0, size)
        self._publish(self.cursor + _layout.stride(size), self.sequence + 1, 1)

    def payload_view(self, size: int) -> memoryview:
        """The payload bytes of a slot at the cursor."""
        at = self.cursor % self._capacity + HEADER_BYTES
        return self.ring[at : at + size]

    def _write(self, position: int, sequence: int, total: int, offset: int, size: int, pieces: Pieces) -> None:
        start = position % self._capacity
        at = start + HEADER_BYTES
        for piece in pieces:
            stop = at + len(piece)
            self.ring[at:stop] = piece
            at = stop
        self._header(start, sequence, total, offset, size)

    def _header(self, start: int, sequence: int, total: int, offset: int, size: int) -> None:
        flags = checksum = 0
        if self._checksum:
            flags = _layout.SLOT_CHECKSUM
            checksum = crc32c(self.ring[start + HEADER_BYTES : start + HEADER_BYTES + size])
        HEADER.pack_into(self.ring, start, sequence, total, offset, size, flags, checksum)

    def _publish(self, end: int, sequence: int, messages: int) -> None:
        words, before = self._words, self.cursor
        # Own state first: an exception from a signal handler between any two lines then leaves a slot that the next
        # publish makes visible too, never one that it overwrites.
        self.cursor = end
        self.sequence = sequence
        self.messages += messages
        entry = self._next_entry
        words[entry] = end
        words[entry + 1] = sequence
        other = 2 * self._at.journal + _JOURNAL_WORDS - entry
        self._next_entry = other
        words[self._at.published] = end
        # No fence: a reader that parks runs a barrier in this process between its epoch and its second look.
        rung = self._rung
        for rank, (epoch_word, _) in enumerate(self._ranks):
            epoch = words[epoch_word]
            if epoch != rung[rank]:
                self._ring(rank, epoch, before)

    # bells and gates

    def _ring(self, rank: int, epoch: int, start: int) -> None:
        words, lines = self._words, self._ranks[rank][1]
        self._confirm(lines, start)
        words[lines.rang_at] = time.monotonic_ns()
        if self.live:
            bell.ring(self._bells[rank])
        self.rings += 1
        self._rung[rank] = epoch

    def _confirm(self, lines: RankWords, start: int) -> None:
        words = self._words
        with self._confirming:
            stay = words[lines.stay]
            gate = words[lines.gate]
            if stay & 1 or stay == gate or gate == stay | 1:
                return
            words[lines.start] = start
            words[lines.gate] = stay
            self._limit = min(self._limit, start + self._capacity)

    def ring_all(self) -> None:
        """Confirm every rank that wants to join, and ring every bell."""
        for rank, (epoch_word, _) in enumerate(self._ranks):
            self._ring(rank, self._words[epoch_word], self.cursor)

    def drop(self, rank: int) -> None:
        """Stop waiting for a rank, and wake both it and whoever waits for the room it held."""
        lines = self._ranks[rank][1]
        with self._confirming:
            self._mapping.store(lines.gate * 8, self._words[lines.stay] | 1)
        self._ring(rank, self._words[lines.epoch], self.cursor)
        if self.live:
            bell.ring(self.own_bell)

    def counters(self) -> dict[str, int]:
        """What the endpoint reports of its core."""
        return {"rings": self.rings, "messages": self.messages}
