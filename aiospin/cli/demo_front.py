"""The demo's front end: sends files, awaits answers from any worker, checks each, then idles.

Guarantee: an answer counts as verified only if digest and line count equal those of the bytes that were sent; a file
counts as verified only if every worker answered it so. Cancelled at any point, it leaves its queues to their owner.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aiospin import PeerDied, WaitSet
from aiospin.bench.cpu import cpu_ns
from aiospin.bench.loops import guarded
from aiospin.cli.demo_crew import Crew
from aiospin.cli.demo_sources import Source, Sources
from aiospin.cli.demo_wire import Answer, pack_head
from aiospin.cli.report import Progress

if TYPE_CHECKING:
    from aiospin import Queue, QueueReader, QueueWriter

READY_SECONDS = 60.0


@dataclass
class Outcome:
    """What came of it; durations in nanoseconds, CPU per process with the front end first."""

    files: int = 0
    nbytes: int = 0
    verified: int = 0
    wrong: list[str] = field(default_factory=list[str])
    """what was wrong, in words, of every answer that differs"""
    seconds: float = 0.0
    latencies: list[int] = field(default_factory=list[int])
    """one per answer: from just before the file was written into the ring to its answer"""
    cpu_seconds: list[float] = field(default_factory=list[float])
    idle_cpu_percent: list[float | None] = field(default_factory=list["float | None"])
    """None when it did not idle"""

    @property
    def lost(self) -> int:
        """Files sent that some worker did not answer, or not rightly."""
        return self.files - self.verified


@dataclass
class Sent:
    """A file on its way."""

    source: Source
    at: int
    missing: int
    """answers still to come"""
    good: bool = True


class FrontEnd:
    def __init__(
        self,
        queue: Queue[bytes],
        writer: QueueWriter[bytes],
        answers: Sequence[QueueReader[bytes]],
        crew: Crew,
        sources: Sources,
        window: int,
        progress: Progress,
    ) -> None:
        self.outcome = Outcome()
        self._queue = queue
        self._writer = writer
        self._answers = tuple(answers)
        self._ranks: dict[object, int] = {reader: rank for rank, reader in enumerate(answers)}
        self._crew = crew
        self._sources = sources
        self._room = asyncio.Semaphore(window)
        self._progress = progress
        self._pids = [os.getpid(), *(process.pid or 0 for process in crew.processes)]
        self._sent: dict[int, Sent] = {}
        self._all_answered = asyncio.Event()
        self._all_answered.set()

    async def run(self, idle: float) -> Outcome:
        """Sends every file, awaits every answer, then idles for `idle` seconds.

        WorkerDied when a worker ends meanwhile. TimeoutError when the workers are not there after READY_SECONDS.
        """
        with self._crew.watched() as death:
            await guarded(self._play(idle), self._collect(), death)
        return self.outcome

    async def _play(self, idle: float) -> None:
        outcome = self.outcome
        await self._queue.ready(timeout=READY_SECONDS)
        self._progress.stage("sending files")
        before = self._cpu()
        start = time.perf_counter()
        await self._send()
        await self._all_answered.wait()
        outcome.seconds = time.perf_counter() - start
        outcome.cpu_seconds = [(now - then) / 1e9 for then, now in zip(before, self._cpu(), strict=True)]
        self._progress.stage(f"{outcome.verified} of {outcome.files} files verified; idling for {idle:g} s")
        before = self._cpu()
        start = time.perf_counter()
        await asyncio.sleep(idle)
        wall = time.perf_counter() - start
        spent = [now - then for then, now in zip(before, self._cpu(), strict=True)]
        outcome.idle_cpu_percent = [each / wall / 1e7 if idle else None for each in spent]

    async def _send(self) -> None:
        outcome = self.outcome
        async with contextlib.aclosing(self._sources.batches()) as batches:
            async for batch in batches:
                for source in batch:
                    await self._room.acquire()
                    index = outcome.files
                    self._sent[index] = Sent(source, time.perf_counter_ns(), len(self._answers))
                    self._all_answered.clear()
                    outcome.files += 1
                    outcome.nbytes += source.nbytes
                    await self._writer.aput(pack_head(index, source.path), *source.chunks)
                    self._progress.count(outcome.files, outcome.nbytes, outcome.verified)

    async def _collect(self) -> None:
        """Takes answers for as long as it is let; between them it waits for whichever worker is first."""
        async with WaitSet() as waiting:
            for reader in self._answers:
                waiting.add(reader)
            while True:
                for member in await waiting.wait():
                    self._take(self._ranks[member])

    def _take(self, rank: int) -> None:
        """All answers that lie in one worker's queue."""
        try:
            while (slot := self._answers[rank].try_acquire_read()) is not None:
                arrived = time.perf_counter_ns()
                with slot:
                    answer = Answer.unpack(slot.data)
                self._check(answer, rank, arrived)
        except PeerDied as death:
            raise self._crew.died(rank) from death

    def _check(self, answer: Answer, rank: int, arrived: int) -> None:
        outcome = self.outcome
        sent = self._sent.get(answer.index)
        if sent is None:
            outcome.wrong.append(f"worker {rank} answered file {answer.index}, which nobody owes an answer")
            return
        outcome.latencies.append(arrived - sent.at)
        if answer != Answer(rank, answer.index, sent.source.lines, sent.source.digest):
            sent.good = False
            outcome.wrong.append(f"worker {rank} answered wrongly for {os.fsdecode(sent.source.path)}")
        sent.missing -= 1
        if not sent.missing:
            outcome.verified += sent.good
            self._room.release()
            del self._sent[answer.index]
            if not self._sent:
                self._all_answered.set()

    def _cpu(self) -> list[int]:
        return [cpu_ns(pid) for pid in self._pids]
