"""At least 500 cancels in each stage of a wait, stepped to by seams: inline, monitor, parked, notified.

The message that the wait is for comes before the cancel, after it, at the same time, or not at all. Every message is
received exactly once and in order, whatever the cancelled call was. The writer's waits for room are the mirror image.
"""

from __future__ import annotations

import asyncio
import gc
import random
from collections.abc import Callable
from typing import Any

import pytest
from async_rig import FITS, WHOLE, assert_whole, content, fill, number, numbers, pair

from aiospin import QueueReader, WaitPolicy
from aiospin.testing import at_stages

CANCELS = 500
NATIVE = pytest.mark.native
INLINE = WaitPolicy(maximum_us=0.5)
MONITORED = WaitPolicy(core_share=1.0, inline_us=0.0, parks=False)
PARKED = WaitPolicy(maximum_us=0.5, inline_us=0.0)

# The stage to cancel in, the policy that leads there, and the stage in which the wait is answered to get there.
STORIES = [
    pytest.param("inline", INLINE, None, id="inline", marks=NATIVE),
    pytest.param("monitor", MONITORED, None, id="monitor", marks=NATIVE),
    pytest.param("parked", PARKED, None, id="parked"),
    pytest.param("notified", PARKED, "parked", id="notified-by-the-bell"),
    pytest.param("notified", MONITORED, "monitor", id="notified-by-the-waiter-thread", marks=NATIVE),
]


@pytest.fixture(autouse=True)
def many_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """No policy collapses, however small the machine."""
    monkeypatch.setattr("aiospin._endpoint.usable_cpus", lambda *_: 64)


class Story:
    """Cancels one task after the other when it comes to a stage, and answers its wait now, then or never."""

    def __init__(self, stage: str, answer_in: str | None, answer: Callable[[], None]) -> None:
        self.stage, self.answer_in, self.answer = stage, answer_in, answer
        self.chance = random.Random(stage)
        self.cancels = 0
        self.victim: asyncio.Task[Any] | None = None

    def step(self, stage: str, _: Any) -> None:
        """The hook of `at_stages`."""
        if self.victim is None:
            return
        if stage == self.answer_in:
            self.chance.choice((self.answer, lambda: asyncio.get_running_loop().call_soon(self.answer)))()
        if stage != self.stage:
            if stage == "parked" != self.answer_in:  # the policy found a reason: not the story, and not counted
                asyncio.get_running_loop().call_soon(self.answer)
            return
        moment = "never" if self.answer_in else self.chance.choice(("before", "after", "soon", "never"))
        if moment == "before":
            self.answer()
        self.victim.cancel()
        if moment == "after":
            self.answer()
        elif moment == "soon":
            asyncio.get_running_loop().call_soon(self.answer)
        self.victim = None

    async def play(self, call: Any, horizon: Any) -> None:
        """Run a call until it is over. Counts it if it ended cancelled."""
        for _ in range(8):
            horizon.observe(0.0)  # waits were short: watching in place is due
        task = self.victim = asyncio.ensure_future(call)
        await asyncio.wait([task])
        self.victim = None
        self.cancels += task.cancelled()


async def take_by_aget(reader: QueueReader[Any], received: list[int]) -> None:
    received.append(number(await reader.aget()))


async def take_by_aget_many(reader: QueueReader[Any], received: list[int]) -> None:
    received += numbers(await reader.aget_many(4))


async def take_by_await(reader: QueueReader[Any], received: list[int]) -> None:
    with await reader.acquire_read() as slot:
        received.append(number(slot.data))


async def take_by_async_with(reader: QueueReader[Any], received: list[int]) -> None:
    async with reader.acquire_read(timeout=3600) as slot:
        received.append(number(slot.data))


def take_bare(reader: QueueReader[Any], _: list[int]) -> Any:
    return reader.acquire_read()  # should it succeed while it is cancelled, the slot dies untouched


TAKES = [take_by_aget, take_by_aget_many, take_by_await, take_by_async_with, take_bare]


@pytest.mark.parametrize(("stage", "policy", "answer_in"), STORIES)
async def test_reads_cancelled_in_a_stage_lose_nothing(stage: str, policy: WaitPolicy, answer_in: str | None) -> None:
    with pair(policy=policy) as (queue, writer, reader):
        sent = 0
        received: list[int] = []

        def put() -> None:
            nonlocal sent
            writer.put(content(sent))
            sent += 1

        story = Story(stage, answer_in, put)
        with at_stages(story.step):
            for round_ in range(100 * CANCELS):
                await story.play(TAKES[round_ % len(TAKES)](reader, received), reader._horizon)
                gc.collect(0)
                await asyncio.sleep(0)
                while len(received) < sent:
                    received.append(number(reader.get_nowait()))
                if story.cancels == CANCELS:
                    break
        while len(received) < sent:
            received += numbers(await reader.aget_many(100))
        assert story.cancels == CANCELS
        assert received == list(range(sent))
        assert sent > CANCELS / 4
        assert_whole(queue, writer, reader)


@pytest.mark.parametrize(("stage", "policy", "answer_in"), STORIES)
async def test_writes_cancelled_in_a_stage_publish_once_or_not(
    stage: str, policy: WaitPolicy, answer_in: str | None
) -> None:
    with pair(policy=policy) as (queue, writer, reader):
        sent = list(range(fill(writer)))
        received: list[int] = []

        def take() -> None:
            if queue.statistics().depth:
                received.append(number(reader.get_nowait()))

        async def put(sequence: int) -> None:
            await writer.aput(content(sequence, WHOLE))
            sent.append(sequence)

        async def claim(sequence: int) -> None:
            async with writer.acquire_write(WHOLE) as slot:
                slot.data[:] = content(sequence, WHOLE)
            sent.append(sequence)

        story = Story(stage, answer_in, take)
        with at_stages(story.step):
            for round_ in range(100 * CANCELS):
                await story.play((put, claim)[round_ % 2](1000 + round_), writer._horizon)
                await asyncio.sleep(0)
                assert not writer._claimed
                while len(sent) - len(received) < FITS:
                    writer.put_nowait(content(10**6 + round_, WHOLE))
                    sent.append(10**6 + round_)
                if story.cancels == CANCELS:
                    break
        assert story.cancels == CANCELS
        received += numbers(await reader.aget_many(1000))
        assert received == sent
        assert len(received) > CANCELS / 4
        assert_whole(queue, writer, reader)
