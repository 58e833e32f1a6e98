"""The doorbell protocol, from a writer to its readers, under x86-TSO, with processes killed and replaced at any step.

One writer publishes `slots` slots to `readers` readers. Shared memory (each word has one writing process):

    published   the writer's published cursor
    epochs[r]   park epoch of reader r; only grows, is never cleared, survives its reader
    bells[r]    reader r's doorbell: a pipe, so a byte stays until it is drained

`rung[r]` is private to the writer's process; a successor starts with zeros.

    writer                                   reader r, wants slot n
    exchange(published, k)                   look: if published >= n: take it, n += 1
    for r: f = load(epochs[r])               exchange(epochs[r], epochs[r] + 1)
       if f != rung[r]:                      if load(published) >= n: look
          ring bells[r]                      sleep until bells[r] has a byte; drain it; look
          rung[r] = f                           (finding nothing parks again, with a new epoch)
    attach (a successor): rung = 0; the loop above, then go on at published + 1

The exchanges are full barriers: no load after them is satisfied before them. `light` is the pure-Python backend's way:
both stores are plain, and a reader has the kernel run a barrier on every process between its epoch and its second look.
A killed process's retired stores still drain.

Claim: no reachable state is stuck with a reader asleep short of the last slot. Each of MUTANTS, a plausible
simplification, breaks it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from explorer import Exploration, explore, put

MUTANTS = {
    "published_plain": "the writer publishes with a plain store",
    "epoch_plain": "the reader announces its park with a plain store",
    "no_recheck": "the reader does not look again before it sleeps",
    "epoch_restart": "a successor reader counts its epochs from 1 again",
    "attach_silent": "a successor writer does not ring",
    "epoch_cleared": "the reader clears its epoch after waking, and rings are for epochs other than 0",
}
LIGHT_MUTANTS = {
    "no_barrier": "the reader sleeps without a barrier on the writer",
    "barrier_late": "the barrier comes after the second look",
}


class Writer(NamedTuple):
    step: str  # publish, load, ring
    rank: int  # whom load and ring are about
    seen: int  # the epoch that load found
    rung: tuple[int, ...]
    buffer: tuple[int, ...]  # stores to `published` that are not visible yet
    kills: int  # how often it may still be killed


class Reader(NamedTuple):
    step: str  # look, park, barrier, recheck, sleep
    wants: int
    epoch: int
    buffer: tuple[int, ...]  # stores to its epoch that are not visible yet
    kills: int


class State(NamedTuple):
    writer: Writer
    readers: tuple[Reader, ...]
    published: int
    epochs: tuple[int, ...]
    bells: tuple[int, ...]


class Doorbell(NamedTuple):
    """One configuration of the model."""

    readers: int
    slots: int
    kills: int = 1
    light: bool = False
    mutant: str | None = None

    def start(self) -> State:
        """Nothing is published and everybody looks."""
        zeros = (0,) * self.readers
        reader = Reader("look", 1, 0, (), self.kills)
        return State(Writer("publish", 0, 0, zeros, (), self.kills), (reader,) * self.readers, 0, zeros, zeros)

    def run(self) -> Exploration[State]:
        """Explore this configuration."""
        return explore(self.start(), self.successors, lambda s: any(r.wants <= self.slots for r in s.readers))

    def successors(self, state: State) -> Iterator[State]:
        """Every state that one step of one process, or of the memory, leads to."""
        yield from self.drains(state)
        yield from self.writer_steps(state)
        for rank in range(self.readers):
            yield from self.reader_steps(state, rank)

    def drains(self, state: State) -> Iterator[State]:
        writer = state.writer
        if writer.buffer:
            yield state._replace(writer=writer._replace(buffer=writer.buffer[1:]), published=writer.buffer[0])
        for rank, reader in enumerate(state.readers):
            if reader.buffer:
                yield state._replace(
                    readers=put(state.readers, rank, reader._replace(buffer=reader.buffer[1:])),
                    epochs=put(state.epochs, rank, reader.buffer[0]),
                )

    def writer_steps(self, state: State) -> Iterator[State]:
        writer = state.writer
        latest = writer.buffer[-1] if writer.buffer else state.published
        if writer.step == "publish" and latest < self.slots:
            if self.light or self.mutant == "published_plain":
                yield state._replace(writer=writer._replace(step="load", rank=0, buffer=(*writer.buffer, latest + 1)))
            elif not writer.buffer:
                yield state._replace(writer=writer._replace(step="load", rank=0), published=latest + 1)
        elif writer.step == "load":
            if writer.rank == self.readers:
                yield state._replace(writer=writer._replace(step="publish", rank=0))
            else:
                yield state._replace(writer=writer._replace(step="ring", seen=state.epochs[writer.rank]))
        elif writer.step == "ring":
            onward = writer._replace(step="load", rank=writer.rank + 1, seen=0)
            if writer.seen != writer.rung[writer.rank] and (writer.seen or self.mutant != "epoch_cleared"):
                onward = onward._replace(rung=put(writer.rung, writer.rank, writer.seen))
                yield state._replace(writer=onward, bells=put(state.bells, writer.rank, 1))
            else:
                yield state._replace(writer=onward)
        if writer.kills:
            rung = state.epochs if self.mutant == "epoch_cleared" else (0,) * self.readers
            step = "publish" if self.mutant == "attach_silent" else "load"
            yield state._replace(writer=Writer(step, 0, 0, rung, (), writer.kills - 1), published=latest)

    def reader_steps(self, state: State, rank: int) -> Iterator[State]:
        reader = state.readers[rank]

        def at(step: str, **change: object) -> State:
            return state._replace(readers=put(state.readers, rank, reader._replace(step=step, **change)))

        wanting = reader.wants <= self.slots
        visible = state.published >= reader.wants
        if reader.step == "look" and wanting:
            yield at("look", wants=reader.wants + 1) if visible else at("park")
        elif reader.step == "park":
            onward = "barrier" if self.light and self.mutant not in LIGHT_MUTANTS else "recheck"
            epoch = reader.epoch + 1
            if self.light or self.mutant == "epoch_plain":
                yield at(onward, epoch=epoch, buffer=(*reader.buffer, epoch))
            elif not reader.buffer:
                yield at(onward, epoch=epoch)._replace(epochs=put(state.epochs, rank, epoch))
        elif reader.step == "barrier":
            yield self.barrier(at("sleep" if self.mutant == "barrier_late" else "recheck"))
        elif reader.step == "recheck":
            if visible and self.mutant != "no_recheck":
                yield at("look")
            else:
                yield at("barrier" if self.mutant == "barrier_late" else "sleep")
        elif reader.step == "sleep" and state.bells[rank]:
            buffer = (*reader.buffer, 0) if self.mutant == "epoch_cleared" else reader.buffer
            yield at("look", buffer=buffer)._replace(bells=put(state.bells, rank, 0))
        if reader.kills and wanting:
            epochs = put(state.epochs, rank, reader.buffer[-1]) if reader.buffer else state.epochs
            epoch = 0 if self.mutant == "epoch_restart" else epochs[rank]
            successor = Reader("look", reader.wants, epoch, (), reader.kills - 1)
            yield state._replace(readers=put(state.readers, rank, successor), epochs=epochs)

    @staticmethod
    def barrier(state: State) -> State:
        """The kernel interrupts every process: what any of them has stored is visible afterwards."""
        writer = state.writer
        return State(
            writer._replace(buffer=()),
            tuple(reader._replace(buffer=()) for reader in state.readers),
            writer.buffer[-1] if writer.buffer else state.published,
            tuple(r.buffer[-1] if r.buffer else e for r, e in zip(state.readers, state.epochs, strict=True)),
            state.bells,
        )
