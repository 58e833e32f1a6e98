"""A turmoil: clients call a group of workers without a pause, while these are killed, stopped, told to go and replaced.

    python turmoil.py                    the short form: a few fixed seeds, half a minute
    python turmoil.py --long             many seeds, a quarter of an hour
    python turmoil.py --seed 7 --seconds 30

Guarantee: every call ends, with its own answer or an error that its fate explains; none runs more often than its
delivery allows; afterwards the group is whole, and when it is left, so is everything else: descriptors, threads and
processes are what they were. Replaying a seed repeats what is tried, not who is faster.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import logging
import os
import random
import re
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.forkserver import ensure_running, set_forkserver_preload
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parent.parent)]

import uvloop  # noqa: E402
from traces import Traces, eventually  # noqa: E402
from turmoil_hosted import AsyncPlayer, Player  # noqa: E402
from turmoil_ledger import MAX_DELIVERIES, Entry, Ledger, Violation  # noqa: E402

import aiospin  # noqa: E402
from aiospin.workers import Restart, WorkerGroup  # noqa: E402

HANG = 60.0  # seconds for one call, which only a hang takes
CLIENTS = 12
LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.SelectorEventLoop,
    "uvloop": uvloop.new_event_loop,
}


@dataclass(frozen=True)
class Weather:
    """What a seed makes of a turmoil."""

    seed: int
    kind: Any
    size: int
    method: str
    pipeline: int | None
    capacity: int
    loop: str
    pause: float
    """The longest time between two acts of violence, in seconds."""

    @classmethod
    def of(cls, seed: int) -> Weather:
        chance = random.Random(f"weather {seed}")
        return cls(
            seed,
            kind=(Player, AsyncPlayer)[seed % 2],
            size=chance.choice((1, 2, 3)),
            method=chance.choice(("forkserver", "forkserver", "spawn")),
            pipeline=chance.choice((None, 1, 4, 16)),
            capacity=chance.choice((1 << 16, 1 << 16, 1 << 20)),
            loop=chance.choice(sorted(LOOPS)),
            pause=chance.choice((0.02, 0.1, 0.3)),
        )

    def line(self) -> str:
        return (
            f"seed {self.seed}: {self.size} x {self.kind.__name__}, {self.method}, pipeline {self.pipeline}, "
            f"{self.capacity >> 10} KiB, {self.loop}"
        )


class Turmoil:
    """One seed, played once."""

    def __init__(self, seed: int, seconds: float, folder: Path) -> None:
        self.weather = Weather.of(seed)
        self.violence: Counter[str] = Counter()
        self._traces = Traces(folder)
        self._seconds = seconds
        self._ledger = Ledger(self.weather.size)
        self._over = False

    def run(self) -> str:
        """The figures. Violation when a promise was broken."""
        before = holdings()
        loop = LOOPS[self.weather.loop]()
        try:
            loop.run_until_complete(self._play())
            loop.run_until_complete(loop.shutdown_default_executor())
        finally:
            loop.close()
            del loop  # with which goes what waits in it share
        self._ledger.judge(self._traces.after("ran"))
        patience = time.monotonic() + HANG
        while holdings() - before:
            if time.monotonic() > patience:
                raise Violation(f"{self.weather.line()}: left behind {holdings() - before}")
            threading.Event().wait(0.01)
        return self.line()

    def line(self) -> str:
        endings = ", ".join(f"{many} {ending}" for ending, many in sorted(self._ledger.endings.items()))
        violence = ", ".join(f"{many} {act}" for act, many in sorted(self.violence.items()))
        return f"{self.weather.line()}: {len(self._ledger.entries)} calls: {endings}; {violence}"

    @property
    def endings(self) -> Counter[str]:
        return self._ledger.endings

    async def _play(self) -> None:
        weather = self.weather
        async with WorkerGroup(
            weather.kind,
            weather.size,
            args=(str(self._traces.folder),),
            start_method=weather.method,
            capacity=weather.capacity,
            pipeline=weather.pipeline,
            max_deliveries=MAX_DELIVERIES,
            restart=Restart(first=0.0, most=0.0, attempts=None),
        ) as group:
            clients = [asyncio.ensure_future(self._client(group, number)) for number in range(CLIENTS)]
            storming = asyncio.ensure_future(self._storm(group))
            try:
                await asyncio.wait([storming, *clients], timeout=self._seconds, return_when=asyncio.FIRST_EXCEPTION)
            finally:
                self._over = True
                outcomes = await asyncio.gather(storming, *clients, return_exceptions=True)
            for outcome in outcomes:
                if isinstance(outcome, BaseException):
                    raise outcome
            await self._is_whole(group)

    async def _is_whole(self, group: WorkerGroup[Any]) -> None:
        """Everybody is there again, and nothing is pending."""
        pids = await asyncio.wait_for(group.call("pid"), HANG)
        statistics = group.statistics()
        # A worker that was told to go may go now; whoever answered was alive.
        if len(set(pids)) != self.weather.size or statistics.pending or statistics.waiting:
            raise Violation(f"{self.weather.line()}: not whole afterwards: {pids}, {statistics}")
        await eventually(lambda: {worker.state for worker in group.statistics().workers} == {"up"})

    # those who call

    async def _client(self, group: WorkerGroup[Any], name: int) -> None:
        chance = random.Random(f"client {self.weather.seed} {name}")
        kept: list[Any] = []  # views of answers, held for a while; for ever would stop their workers
        while not self._over:
            entry = self._ledger.open(chance)
            timeout = chance.choice((0.0, 0.001, 0.02)) if chance.random() < 0.1 else None
            entry.timed = timeout is not None
            call = asyncio.ensure_future(self._call(group, entry, timeout, kept))
            if chance.random() < 0.1:
                for _ in range(chance.randrange(20)):
                    await asyncio.sleep(0)
                entry.cancelled = call.cancel()
            await asyncio.wait([call], timeout=HANG)
            if not call.done():
                call.cancel()
                raise Violation(f"{self.weather.line()}: {entry.describe()}hangs; {group.statistics()}")
            self._note_ending(entry, call)
            del call  # a call that was cancelled may hold its answer
            while kept and chance.random() < 0.7:
                await asyncio.sleep(0)
            kept.clear()

    @staticmethod
    def _note_ending(entry: Entry, call: asyncio.Task[None]) -> None:
        if call.cancelled():
            entry.ending = "CancelledError"
            return
        error = call.exception()
        if isinstance(error, Violation):
            raise error
        entry.ending = "result" if error is None else type(error).__name__
        entry.text = str(error)

    async def _call(self, group: WorkerGroup[Any], entry: Entry, timeout: float | None, kept: list[Any]) -> None:
        caller = group.options(timeout=timeout, delivery=entry.delivery, kill_after=0.5, in_place=entry.number % 2 == 0)  # type: ignore[arg-type]
        number, act = entry.number, entry.act
        if entry.kind == "stream":
            stream: Any = caller.stream(entry.rank, "parts", number, act, 7)  # type: ignore[arg-type]
            async with contextlib.aclosing(stream) as parts:
                got = [part async for part in parts]
            if got != list(range(7)):
                raise Violation(f"{entry.describe()}got {got}")
            return
        payload = entry.payload()
        if entry.kind == "all":
            answers = await caller.call("play", number, act, memoryview(payload))
        else:
            answers = [await caller.call_one(entry.rank, "play", number, act, memoryview(payload))]  # type: ignore
        if any(bytes(answer) != payload for answer in answers):
            raise Violation(f"{entry.describe()}got another answer than its own")
        kept.extend(answers)

    # those who disturb

    async def _storm(self, group: WorkerGroup[Any]) -> None:
        chance = random.Random(f"storm {self.weather.seed}")
        while not self._over:
            await asyncio.sleep(chance.uniform(0.0, self.weather.pause))
            act = chance.choices(("kill", "kill all", "terminate", "stop", "restart"), (40, 10, 20, 15, 15))[0]
            ranks = range(self.weather.size) if act == "kill all" else [chance.randrange(self.weather.size)]
            pids = [pid for pid in (group.pids[rank] for rank in ranks) if pid]
            self.violence[act] += 1
            if act == "restart":
                await self._restart(group, ranks[0])
            elif act == "terminate":
                send(pids, signal.SIGTERM)
            elif act == "stop":
                send(pids, signal.SIGSTOP)
                await asyncio.sleep(chance.uniform(0.0, 0.05))
                if chance.random() < 0.3:
                    send(pids, signal.SIGKILL)
                send(pids, signal.SIGCONT)
            else:
                send(pids, signal.SIGKILL)

    async def _restart(self, group: WorkerGroup[Any], rank: int) -> None:
        try:
            await asyncio.wait_for(group.restart(rank), HANG)
        except asyncio.TimeoutError:
            raise Violation(f"{self.weather.line()}: restart({rank}) hangs; {group.statistics()}") from None


def send(pids: list[int], number: signal.Signals) -> None:
    """To whoever is still there."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def holdings() -> Counter[str]:
    """What the descriptors lead to, how many threads there are, and how many child processes."""
    gc.collect()
    held: Counter[str] = Counter()
    for entry in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the listing's own
            held[re.sub(r":\[\d+\]$", "", os.readlink(f"/proc/self/fd/{entry}"))] += 1
    held["thread"] = len(os.listdir("/proc/self/task"))
    held["child"] = len(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())
    return held


def warm_up() -> None:
    """Make what a process makes once: the forkserver, the waiter thread, a first loop."""
    set_forkserver_preload(["aiospin.workers", "mortal", "turmoil_hosted"])
    ensure_running()
    with tempfile.TemporaryDirectory() as folder:
        for make in LOOPS.values():
            loop = make()
            loop.run_until_complete(Turmoil(0, 0.0, Path(folder))._play())
            loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()


def main() -> int:
    """Play what the arguments ask for; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--long", action="store_true", help="many seeds, a quarter of an hour")
    parser.add_argument("--seed", type=int, help="one seed only")
    parser.add_argument("--seconds", type=float, help="of each turmoil")
    options = parser.parse_args()
    seeds = [options.seed] if options.seed is not None else list(range(1, 31 if options.long else 5))
    seconds = options.seconds or (30.0 if options.long else 5.0)
    logging.getLogger("aiospin").setLevel(logging.ERROR)  # which would tell of each of a thousand deaths
    with tempfile.TemporaryDirectory() as elsewhere:
        os.chdir(elsewhere)  # children import what is installed, and not the sources beside pyproject.toml
        if aiospin.backend == "native":
            os.environ["AIOSPIN_REQUIRE_EXTENSIONS"] = "1"
        warm_up()
        for seed in seeds:
            with tempfile.TemporaryDirectory() as folder:
                try:
                    print(f"{aiospin.backend} {Turmoil(seed, seconds, Path(folder)).run()}", flush=True)
                except Violation as violation:
                    print(f"VIOLATION with seed {seed} ({aiospin.backend}): {violation}", flush=True)
                    return 1
    print("workers: no promise was broken")
    return 0


if __name__ == "__main__":
    sys.exit(main())
