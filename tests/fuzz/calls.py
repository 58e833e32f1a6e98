"""One execution of the kind `calls`: the public calls of a queue whose memory is damaged between them.

Guarantee: whatever the damage, a call returns or raises one of the documented errors; anything else leaves here as it
came, and ends the run. So does a reader that has gone further than any word of the segment ever said.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import random
from collections.abc import Callable
from typing import Any

import uvloop
from damage import damage, words
from ends import RING, ends

import aiospin

Tally = collections.Counter[str]

# MemoryError: a length that is possible, and more than this machine has.
DOCUMENTED = (aiospin.AiospinError, TimeoutError, MemoryError)

_LOOPS: tuple[Callable[[], asyncio.AbstractEventLoop], ...] = (asyncio.new_event_loop, uvloop.new_event_loop)


class Queue:
    """A queue in this process whose ends are replaced when they break."""

    def __init__(self, chance: random.Random, stack: contextlib.ExitStack) -> None:
        self.chance = chance
        self.readers = chance.choice((1, 1, 2))
        self.queue, self.writer, self.reading = stack.enter_context(
            ends(readers=self.readers, checksum=chance.random() < 0.3)
        )
        stack.callback(self.close)
        self.held: list[Any] = []
        self.segment = self.queue._segment
        at = words(self.readers)
        self.cursors = [place for name, place in at.items() if name.endswith(("published", "released", "gate start"))]
        self.furthest = 0

    def watch(self) -> None:
        """Remember how far the segment says that anybody may be, and see that no reader is further."""
        self.furthest = max(self.furthest, *map(self.segment.mapping.load, self.cursors))
        opened = [reader for reader in self.reading if reader._opened]
        assert all(reader._cursor <= self.furthest for reader in opened), "a reader is beyond what was published"

    def close(self) -> None:
        self.held.clear()
        for end in (self.writer, *self.reading):
            end.close()

    def payload(self) -> bytes:
        most = self.chance.choice((100, 100, 3000, RING, 3 * RING))
        return bytes(self.chance.randrange(most))

    def read(self) -> None:
        rank = self.chance.randrange(self.readers)
        reader = self.reading[rank]
        choice = self.chance.randrange(10)
        if choice == 0:
            reader.get_nowait()
        elif choice == 1:
            reader.get_many(self.chance.randint(1, 50), timeout=0)
        elif choice == 2:
            reader.get(timeout=0)
        elif choice < 6:
            slot = reader.try_acquire_read()
            if slot is not None:
                self.look(slot)
        elif choice == 6:
            with reader.acquire_read(timeout=0) as slot:
                self.look(slot)
        elif choice == 7:
            reader.arm()
        elif self.held and choice == 8:
            self.held.pop(self.chance.randrange(len(self.held)))
        else:
            self.chance.choice((reader.close, reader.detach))()
            self.reading[rank] = self.queue.reader(rank)

    def look(self, slot: Any) -> None:
        view = slot.data
        assert len(view) == slot.size
        bytes(view)
        if self.chance.random() < 0.3:
            self.held.append(view)
        with contextlib.suppress(BufferError):  # views of it are kept
            del view
            slot.release()

    def write(self) -> None:
        choice = self.chance.randrange(10)
        if choice < 3:
            self.writer.put_nowait(self.payload()[: RING - 64])
        elif choice < 5:
            self.writer.put_many([self.payload() for _ in range(3)], timeout=0)
        elif choice == 5:
            slot = self.writer.try_acquire_write(self.chance.randrange(2000))
            if slot is not None:
                self.chance.choice((slot.publish, slot.abort))()
        elif choice == 6:
            self.writer.put(self.payload(), timeout=0)
        elif choice == 7:
            self.writer.drop_reader(self.chance.randrange(self.readers), force=True)
        elif choice == 8:
            self.writer.arm()
        else:
            self.chance.choice((self.writer.close, self.writer.detach))()
            self.writer = self.queue.writer()

    def look_around(self) -> None:
        statistics = self.queue.statistics()
        assert all(lag is None or lag >= 0 for lag in statistics.lag)
        repr(self.writer), repr(self.reading)

    def await_some(self) -> None:
        """The same through an event loop; each wait has a short time-out, so the loop turns."""
        with contextlib.closing(self.chance.choice(_LOOPS)()) as loop:
            loop.run_until_complete(self._await_some())

    async def _await_some(self) -> None:
        reader = self.reading[self.chance.randrange(self.readers)]
        calls = (
            lambda: reader.aget(timeout=0.001),
            lambda: reader.aget_many(5, timeout=0.001),
            lambda: self._acquire(reader),
            lambda: self.writer.aput(self.payload(), timeout=0.001),
            lambda: self.writer.aput_many([b"a", self.payload()], timeout=0.001),
        )
        await self.chance.choice(calls)()

    async def _acquire(self, reader: Any) -> None:
        async with reader.acquire_read(timeout=0.001) as slot:
            self.look(slot)


def execute(_number: int, chance: random.Random, tally: Tally) -> None:
    """Damage a queue a few times and call whatever there is in between."""
    with contextlib.ExitStack() as stack:
        queue = Queue(chance, stack)
        for _ in range(chance.randrange(20)):
            queue.writer.put(bytes(chance.randrange(2000)))
        actions = [queue.read] * 8 + [queue.write] * 6 + [queue.look_around, queue.await_some]
        for _ in range(20):
            if chance.random() < 0.25:
                damage(queue.segment, chance)
            queue.watch()
            try:
                chance.choice(actions)()
            except DOCUMENTED as error:
                tally[type(error).__name__] += 1
            else:
                tally["works"] += 1
            queue.watch()
