"""Waits of every kind, pending at once in one process, for tests of what a fork under them does to either side.

Guarantee: `settle` returns once every wait sleeps as it should; `answer` returns once every one was answered by a new
message. In a loop nothing but bells and tokens wakes them: the second look once a second is off, so a loop that has
become deaf hangs, and the test's time-out says so.
Assumption: imported by child programs (programs.py) and by processes that multiprocessing starts.
"""

from __future__ import annotations

import asyncio
import threading
import warnings
from collections.abc import Callable, Coroutine
from typing import Any

import uvloop
from ends import RING, content, epoch, fill, until

import aiospin
from aiospin import WaitPolicy, _acquire, _endpoint, _waitset

PARKED = WaitPolicy(maximum_us=0.5, inline_us=0.0)
MONITORED = WaitPolicy(core_share=1.0, inline_us=0.0, parks=False)
LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.SelectorEventLoop,
    "uvloop": uvloop.new_event_loop,
}
NEVER = 1e6  # seconds


def hear_bells_only() -> None:
    """From now on nobody looks whether a bell has failed to say something."""
    for module in (_acquire, _endpoint, _waitset):
        module.LOOK_AFTER = NEVER  # type: ignore[attr-defined]


class Pending:
    """Ends of five queues, and a wait on each: parked, monitored, for room, and on a wait set of two readers.

    `kind` says who waits: "asyncio" or "uvloop" for one loop in a thread of its own, "thread" for a thread per wait.
    """

    def __init__(self, kind: str) -> None:
        hear_bells_only()
        self.kind = kind
        self.queues: list[aiospin.Queue[bytes]] = [
            aiospin.Queue(readers=1, capacity=RING, policy=PARKED),
            aiospin.Queue(readers=1, capacity=RING, policy=MONITORED),
            aiospin.Queue(readers=2, capacity=RING, policy=PARKED),
            aiospin.Queue(readers=1, capacity=RING, policy=PARKED),
        ]
        self.writers = [queue.writer() for queue in self.queues]
        parked, monitored, pair, full = self.queues
        self.readers = [parked.reader(0), monitored.reader(0)]
        self.members = [pair.reader(0), pair.reader(1)]
        self.emptier = full.reader(0)
        self.set = aiospin.WaitSet(self.members)
        self.ends: list[Any] = [*self.writers, *self.readers, *self.members, self.emptier]
        for end in self.ends:
            end.__enter__()
        fill(self.writers[3], 1000)
        self.served = [0, 0, 0, 0]
        self._sequence = 0
        self._stop = False
        self._waiters = [self._read(0), self._read(1), self._read_set(), self._write()]
        self._blocking = [lambda: self._get(0), lambda: self._get(1), self._get_set, self._put]
        self._threads: list[threading.Thread] = []
        self.loop: asyncio.AbstractEventLoop | None = None
        if kind == "thread":
            for coroutine in self._waiters:
                coroutine.close()
            self._threads = [threading.Thread(target=work) for work in self._blocking]
        else:
            self.loop = LOOPS[kind]()
            self._threads = [threading.Thread(target=self._run)]
        for thread in self._threads:
            thread.start()

    def settle(self) -> None:
        """Return once every wait is asleep, and in the stage that its policy chooses."""
        if self.kind == "thread":
            until(lambda: self.served == [self._sequence] * 4)
            until(lambda: min(map(epoch, (self.readers[0], self.writers[3], *self.members))) > 0)
            return
        ends = [*self.readers, self.writers[3]]
        until(lambda: all(len(end._line._waiting) + (end._parked_operation is not None) == 1 for end in ends))
        until(lambda: self.set._waiter is not None)

    def answer(self, rounds: int = 1) -> None:
        """Give every wait what it waits for, that many times, each time once they are asleep again."""
        for _ in range(rounds):
            self.settle()
            self._sequence += 1
            for writer in self.writers[:3]:
                writer.put(content(self._sequence, 100))
            self.emptier.get()
            until(lambda: self.served == [self._sequence] * 4)

    def close(self) -> None:
        """End every wait, and whoever waits."""
        self._stop = True
        self.settle()
        for writer in self.writers[:3]:
            writer.put(b"last")
        self.emptier.get()
        for thread in self._threads:
            thread.join()
        if self.loop is not None:
            self.loop.close()
        self.set.close()
        for end in [*self.ends, *self.queues]:
            end.close()

    def call_in_loop(self, function: Callable[[], Any]) -> Any:
        """Call from within a coroutine of the loop that waits."""
        assert self.loop is not None

        async def call() -> Any:
            return function()

        return asyncio.run_coroutine_threadsafe(call(), self.loop).result()

    def _run(self) -> None:
        assert self.loop is not None
        asyncio.set_event_loop(self.loop)

        async def all_of_them() -> None:
            await asyncio.gather(*self._waiters)

        self.loop.run_until_complete(all_of_them())

    def _check(self, message: bytes, sequence: int) -> None:
        assert self._stop or message == content(sequence, 100)

    async def _read(self, which: int) -> None:
        while not self._stop:
            self._check(await self.readers[which].aget(), self.served[which] + 1)
            self.served[which] += 1

    async def _read_set(self) -> None:
        while not self._stop:
            left = list(self.members)
            while left:
                for member in await self.set.wait():
                    self._check(member.get_nowait(), self.served[2] + 1)  # type: ignore[union-attr]
                    left.remove(member)  # type: ignore[arg-type]
            self.served[2] += 1

    async def _write(self) -> None:
        while not self._stop:
            await self.writers[3].aput(bytes(1000))
            self.served[3] += 1

    def _get(self, which: int) -> None:
        while not self._stop:
            self._check(self.readers[which].get(), self.served[which] + 1)
            self.served[which] += 1

    def _get_set(self) -> None:
        while not self._stop:
            left = list(self.members)
            while left:
                for member in self.set.wait_sync():
                    self._check(member.get_nowait(), self.served[2] + 1)  # type: ignore[union-attr]
                    left.remove(member)  # type: ignore[arg-type]
            self.served[2] += 1

    def _put(self) -> None:
        while not self._stop:
            self.writers[3].put(bytes(1000))
            self.served[3] += 1


# what a forked child does


def use_unclaimed(reader: Any, writer: Any) -> None:
    """Ends that nobody has claimed are as good in a child as anywhere; there and back, by a thread and by a loop."""
    with reader, writer:
        for sequence in range(3):
            writer.put(content(sequence, 2000))
            assert reader.get() == content(sequence, 2000)
        for make in LOOPS.values():
            _exchange(make, reader, writer)


def run_loops_of_its_own() -> None:
    """New queues and new loops of a child, with waits that are watched by its own waiter thread and waits that park."""
    for policy in (PARKED, MONITORED):
        queue: aiospin.Queue[bytes] = aiospin.Queue(readers=1, capacity=RING, policy=policy)
        with queue, queue.writer() as writer, queue.reader(0) as reader:
            for make in LOOPS.values():
                _exchange(make, reader, writer)


def _exchange(make: Callable[[], asyncio.AbstractEventLoop], reader: Any, writer: Any) -> None:
    async def work() -> None:
        for sequence in range(5):
            waiting = asyncio.ensure_future(reader.aget())
            while not len(reader._line._waiting) + (reader._parked_operation is not None):
                await asyncio.sleep(0)
            writer.put(content(sequence, 300))
            assert await waiting == content(sequence, 300)

    loop = make()
    loop.run_until_complete(work())
    loop.close()


def touch_what_is_inherited(waits: Pending) -> None:
    """Every use of the parent's ends is refused, closing them is quiet, and none of it reaches the parent."""
    writer, reader = waits.writers[0], waits.readers[0]
    monitored, room = waits.readers[1], waits.writers[3]
    calls: list[Callable[[], Any]] = [
        lambda: writer.put(b"x"),
        lambda: room.put(b"x"),
        lambda: room.put_nowait(b"x"),
        reader.get,
        monitored.get,
        reader.get_nowait,
        reader.arm,
        waits.set.wait_sync,
        lambda: waits.set.add(reader),
        lambda: aiospin.wait_any(reader),
        lambda: _run_alone(reader.aget()),
        lambda: _run_alone(monitored.aget()),
        lambda: _run_alone(room.aput(b"x")),
        lambda: _run_alone(waits.set.wait()),
        waits.queues[0].shutdown,
    ]
    for number, call in enumerate(calls):
        try:
            got = call()
        except aiospin.ForkedUse:
            continue
        raise AssertionError(f"call {number} returned {got!r}")
    waits.set.discard(waits.members[0])
    waits.set.close()
    for end in [*waits.ends, *waits.queues]:
        end.close()


def _run_alone(awaitable: Any) -> Any:
    async def work() -> Any:
        return await awaitable

    coroutine: Coroutine[Any, Any, Any] = work()
    loop = asyncio.SelectorEventLoop()
    try:
        return loop.run_until_complete(coroutine)
    finally:
        loop.close()


def echo(reader: Any, writer: Any) -> None:
    """The body of a process that multiprocessing starts: sends back what it gets, until the stream ends."""
    with reader, writer:
        for message in reader:
            writer.put(message)


def expect_forks() -> None:
    """Python warns of forks in a process with threads, from 3.12 on. They are the subject here."""
    warnings.filterwarnings("ignore", r"This process .* is multi-threaded", DeprecationWarning)
