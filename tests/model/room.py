"""The doorbell protocol the other way round: a writer that waits for room, and the readers that make it.

The ring holds `capacity` slots; slot k may be written when every reader has released slot k - capacity. Shared memory
(each word has one writing process):

    released[r]   reader r's released cursor
    needed        the position up to which the sleeping writer wants everybody to release
    epoch         the writer's park epoch; only grows, is never cleared, survives its writer
    bell          the writer's doorbell: a byte stays until it is drained

`rung` is private to each reader's process; a successor starts with zero.

    writer, wants to write slot k               reader r, has slot n
    look: if every released[r] >= k - capacity: exchange(released[r], n)
             publish k                          e = load(epoch)
    store(needed, k - capacity)                 if e != rung:
    exchange(epoch, epoch + 1)                     m = load(needed)
    the same look again                            if every released[i] >= m, each loaded in turn:
    sleep until the bell has a byte; drain; look      ring the bell; rung = e
                                                attach (a successor): rung = 0; from `e = load(epoch)`

`light` is the pure-Python backend's way: plain stores; a barrier on every process between the writer's epoch and its
second look; and one in a reader that finds an epoch not rung yet, before it surveys. Without the latter, two readers
that release at once may each miss the other's release, and neither rings.

Claim: no reachable state is stuck with the writer asleep short of the last slot. Each of MUTANTS breaks it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from explorer import Exploration, explore, put

MUTANTS = {
    "released_plain": "a reader releases with a plain store",
    "epoch_plain": "the writer announces its park with a plain store",
    "no_recheck": "the writer does not look again before it sleeps",
    "epoch_restart": "a successor writer counts its epochs from 1 again",
    "attach_silent": "a successor reader does not ring",
    "mark_unmet": "a reader marks the epoch as rung although it did not ring",
}
LIGHT_MUTANTS = {
    "no_barrier": "the writer sleeps without a barrier on the readers",
    "survey_unfenced": "a reader surveys the others while its own release may not be visible yet",
}


class Writer(NamedTuple):
    step: str  # look, need, park, barrier, recheck, sleep
    next: int  # the slot it wants to write
    rank: int  # whose released cursor look and recheck load next
    epoch: int
    buffer: tuple[tuple[str, int], ...]  # stores to `needed` and `epoch` that are not visible yet, in order
    kills: int


class Reader(NamedTuple):
    step: str  # take, epoch, fence, needed, survey
    has: int  # slots released so far
    seen: int  # the epoch that it loaded
    needed: int
    rank: int  # whose released cursor survey loads next
    rung: int
    buffer: tuple[int, ...]  # stores to its released cursor that are not visible yet
    kills: int


class State(NamedTuple):
    writer: Writer
    readers: tuple[Reader, ...]
    released: tuple[int, ...]
    needed: int
    epoch: int
    bell: int


class Room(NamedTuple):
    """One configuration of the model."""

    readers: int
    slots: int
    capacity: int = 1
    kills: int = 1
    light: bool = False
    mutant: str | None = None

    def start(self) -> State:
        """Nothing is written and everything is free."""
        reader = Reader("take", 0, 0, 0, 0, 0, (), self.kills)
        return State(Writer("look", 1, 0, 0, (), self.kills), (reader,) * self.readers, (0,) * self.readers, 0, 0, 0)

    def run(self) -> Exploration[State]:
        """Explore this configuration."""
        return explore(self.start(), self.successors, lambda state: state.writer.next <= self.slots)

    def successors(self, state: State) -> Iterator[State]:
        """Every state that one step of one process, or of the memory, leads to."""
        if state.writer.buffer:
            yield self.drain(state)
        for rank, reader in enumerate(state.readers):
            if reader.buffer:
                yield state._replace(
                    readers=put(state.readers, rank, reader._replace(buffer=reader.buffer[1:])),
                    released=put(state.released, rank, reader.buffer[0]),
                )
        if state.writer.next <= self.slots:
            yield from self.writer_steps(state)
        for rank in range(self.readers):
            yield from self.reader_steps(state, rank)

    @staticmethod
    def drain(state: State) -> State:
        """The writer's oldest store becomes visible."""
        (word, value), *rest = state.writer.buffer
        return state._replace(writer=state.writer._replace(buffer=tuple(rest)), **{word: value})

    def writer_steps(self, state: State) -> Iterator[State]:
        writer = state.writer

        def at(step: str, **change: object) -> State:
            return state._replace(writer=writer._replace(step=step, **change))

        target = writer.next - self.capacity
        announce = "barrier" if self.light and self.mutant != "no_barrier" else "recheck"
        if writer.step in ("look", "recheck"):
            if writer.rank == self.readers:
                yield at("look", next=writer.next + 1, rank=0)
            elif state.released[writer.rank] >= target and not (writer.step, self.mutant) == ("recheck", "no_recheck"):
                yield at(writer.step, rank=writer.rank + 1)
            elif writer.step == "look":
                yield at("need", rank=0)
            else:
                yield at("sleep", rank=0)
        elif writer.step == "need":
            yield at("park", buffer=(*writer.buffer, ("needed", target)))
        elif writer.step == "park":
            epoch = writer.epoch + 1
            if self.light or self.mutant == "epoch_plain":
                yield at(announce, epoch=epoch, buffer=(*writer.buffer, ("epoch", epoch)))
            elif not writer.buffer:
                yield at(announce, epoch=epoch)._replace(epoch=epoch)
        elif writer.step == "barrier":
            yield self.barrier(at("recheck"))
        elif writer.step == "sleep" and state.bell:
            yield at("look")._replace(bell=0)
        if writer.kills:
            visible = state
            while visible.writer.buffer:
                visible = self.drain(visible)
            epoch = 0 if self.mutant == "epoch_restart" else visible.epoch
            yield visible._replace(writer=Writer("look", writer.next, 0, epoch, (), writer.kills - 1))

    def reader_steps(self, state: State, rank: int) -> Iterator[State]:
        reader = state.readers[rank]

        def at(step: str, **change: object) -> State:
            return state._replace(readers=put(state.readers, rank, reader._replace(step=step, **change)))

        done = {"seen": 0, "needed": 0, "rank": 0}
        if reader.step == "take" and state.writer.next > reader.has + 1:
            released = reader.has + 1
            if self.light or self.mutant == "released_plain":
                yield at("epoch", has=released, buffer=(*reader.buffer, released))
            elif not reader.buffer:
                yield at("epoch", has=released)._replace(released=put(state.released, rank, released))
        elif reader.step == "epoch":
            fence = self.light and self.mutant != "survey_unfenced"
            yield at("take") if state.epoch == reader.rung else at("fence" if fence else "needed", seen=state.epoch)
        elif reader.step == "fence":
            yield self.barrier(at("needed"))
        elif reader.step == "needed":
            yield at("survey", needed=state.needed)
        elif reader.step == "survey":
            if reader.rank == self.readers:
                yield at("take", rung=reader.seen, **done)._replace(bell=1)
            elif (reader.has if reader.rank == rank else state.released[reader.rank]) >= reader.needed:
                yield at("survey", rank=reader.rank + 1)
            elif self.mutant == "mark_unmet":
                yield at("take", rung=reader.seen, **done)
            else:
                yield at("take", **done)
        if reader.kills:
            has = reader.buffer[-1] if reader.buffer else state.released[rank]
            step = "take" if self.mutant == "attach_silent" else "epoch"
            successor = Reader(step, has, 0, 0, 0, 0, (), reader.kills - 1)
            yield state._replace(readers=put(state.readers, rank, successor), released=put(state.released, rank, has))

    @classmethod
    def barrier(cls, state: State) -> State:
        """The kernel interrupts every process: what any of them has stored is visible afterwards."""
        while state.writer.buffer:
            state = cls.drain(state)
        return state._replace(
            readers=tuple(reader._replace(buffer=()) for reader in state.readers),
            released=tuple(r.buffer[-1] if r.buffer else v for r, v in zip(state.readers, state.released, strict=True)),
        )
