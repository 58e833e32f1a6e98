"""One execution of the kind `waits`: an end waits on damaged memory, and its time-out, a close or a death ends it.

Guarantee: the wait ends, in a thread and in either event loop, whichever word was damaged, before it began or while it
slept. Ending early, with what the damage made of the memory, is as good.
Assumption: one thread when an execution begins, since its peer is forked.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import os
import random
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import uvloop
from calls import DOCUMENTED
from damage import damage, nasty, set_word, words
from ends import RING, asleep, epoch, fill

import aiospin

PATIENCE = 45.0  # seconds: bells that damage has silenced are looked after once a second

ENDINGS = ("time-out", "close", "death")
PLACES = ("thread", "asyncio", "uvloop")


@contextlib.contextmanager
def peer(queue: aiospin.Queue[Any], writes: bool) -> Iterator[int]:
    """Another process that has the other role, every rank if it reads, and does nothing with it. Its pid."""
    ends: list[Any] = [queue.writer()] if writes else [queue.reader(rank) for rank in range(queue.readers)]
    heard, said = os.pipe()
    pid = os.fork()
    if pid == 0:
        for end in ends:
            end.__enter__()
        os.write(said, b"x")
        while True:
            signal.pause()
    try:
        for end in ends:
            end.close()
        os.read(heard, 1)
        yield pid
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(heard)
        os.close(said)


class Wait:
    """One wait of an end, somewhere, with or without a time-out."""

    def __init__(self, end: Any, writes: bool, timeout: float | None) -> None:
        self.end = end
        self.call: Callable[[], Any] = (
            (lambda: end.put(bytes(3000), timeout=timeout)) if writes else (lambda: end.get(timeout=timeout))
        )
        self.acall = (lambda: end.aput(bytes(3000), timeout=timeout)) if writes else (lambda: end.aget(timeout=timeout))
        self.before = epoch(end)

    def in_thread(self, damaged: Callable[[], None] | None, finish: Callable[[], None]) -> str:
        answers: list[str] = []
        thread = threading.Thread(target=lambda: answers.append(answer(self.call)), daemon=True)
        thread.start()
        if damaged is not None:
            asleep(self.end, self.before)
            damaged()
        finish()
        thread.join(PATIENCE)
        assert not thread.is_alive(), "the wait of a thread has not ended"
        return answers[0]

    async def in_loop(self, damaged: Callable[[], None] | None, finish: Callable[[], None]) -> str:
        async def call() -> str:
            try:
                await self.acall()
            except DOCUMENTED as error:
                return type(error).__name__
            return "works"

        task = asyncio.ensure_future(call())
        await asyncio.sleep(0)
        if damaged is not None:
            while epoch(self.end) == self.before and not task.done():
                await asyncio.sleep(0)
            damaged()
        finish()
        await asyncio.wait([task], timeout=PATIENCE)
        assert task.done(), "the wait of a task has not ended"
        return task.result()


def answer(call: Callable[[], Any]) -> str:
    """How a call ended."""
    try:
        call()
    except DOCUMENTED as error:
        return type(error).__name__
    return "works"


def ended(
    ending: str, place: str, writes: bool, harm: Callable[[Any], object], asleep_first: bool, readers: int = 1
) -> str:
    """Let an end wait for a peer on memory that `harm` damages; how the wait ended."""
    with contextlib.ExitStack() as stack:
        queue: aiospin.Queue[Any] = stack.enter_context(aiospin.Queue(readers=readers, capacity=RING))
        pid = stack.enter_context(peer(queue, not writes)) if ending == "death" else 0
        end: Any = queue.writer() if writes else queue.reader(0)
        stack.callback(end.close)
        end.__enter__()
        if writes:
            fill(end)
        wait = Wait(end, writes, 0.03 if ending == "time-out" else None)
        finish = {"time-out": lambda: None, "close": end.close, "death": lambda: os.kill(pid, signal.SIGKILL)}[ending]
        damaged = None
        if asleep_first:
            damaged = lambda: (harm(queue._segment), None)[1]  # noqa: E731
        else:
            harm(queue._segment)
        if place == "thread":
            return wait.in_thread(damaged, finish)
        loop = asyncio.new_event_loop() if place == "asyncio" else uvloop.new_event_loop()
        try:
            return loop.run_until_complete(wait.in_loop(damaged, finish))
        finally:
            end.close()
            loop.close()


def execute(_number: int, chance: random.Random, tally: collections.Counter[str]) -> None:
    """One wait, damaged in one way and ended in one way."""
    readers = chance.choice((1, 1, 2))

    def harm(segment: Any) -> None:
        if chance.random() < 0.3:
            damage(segment, chance)
            return
        offset = chance.choice(list(words(readers).values()))
        set_word(segment, offset, nasty(chance, segment.mapping.load(offset), segment.capacity))

    ending, place = chance.choice(ENDINGS), chance.choice(PLACES)
    tally[ended(ending, place, chance.random() < 0.5, harm, chance.random() < 0.5, readers)] += 1
