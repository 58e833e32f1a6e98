"""Groups beside each other and beside other waits: in one loop, in the loop of a thread, under many clients."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from ends import until
from hosted import KINDS, Looped, Plain
from stage import Stage

import aiospin
from aiospin.workers import WorkerGroup

MODULE = pytest.mark.asyncio(loop_scope="module")


@MODULE
async def test_two_groups_in_one_loop_are_apart(plain: WorkerGroup[Plain], looped: WorkerGroup[Looped]) -> None:
    assert not set(plain.pids) & set(looped.pids)
    groups: list[WorkerGroup[Any]] = [plain, looped] * 20
    for answers, group in zip(await asyncio.gather(*(each.call("pid") for each in groups)), groups, strict=True):
        assert answers == list(group.pids)


@MODULE
async def test_many_clients_each_get_their_own_answers(group: WorkerGroup[Any]) -> None:
    async def client(number: int) -> None:
        for turn in range(10):
            value = [number, turn]
            assert await group.call_one("any", "echo", value) == value
            if number % 16 == 0:
                assert await group.call("echo", value) == [value] * group.size
            if number % 8 == 1:
                assert [part async for part in group.stream("any", "echo_each", value)] == value

    await asyncio.gather(*(client(number) for number in range(64)))


@MODULE
async def test_a_loop_waits_for_queues_beside_its_group(group: WorkerGroup[Any], stage: Stage) -> None:
    with aiospin.Queue[bytes](capacity=1 << 16) as queue, queue.writer() as writer, queue.reader() as reader:
        standing = asyncio.ensure_future(group.call_one(0, "at", "meanwhile"))
        waiting = asyncio.ensure_future(reader.aget())
        player = await stage.entered("meanwhile")
        for number in range(50):
            await writer.aput(str(number).encode())
            assert await waiting == str(number).encode()
            assert await group.call_one(1, "echo", number) == number
            waiting = asyncio.ensure_future(reader.aget())
        player.go()
        await standing
        waiting.cancel()
        await asyncio.wait([waiting])


async def use(kind: str) -> tuple[int, ...]:
    async with Stage() as stage, WorkerGroup(KINDS[kind], 2, args=(stage.address,)) as group:
        assert await group.call("pid") == list(group.pids)
        with pytest.raises(TimeoutError):
            await group.options(timeout=0.01).call_one(0, "at", "in a thread")
        stage.dismiss("in a thread")
        assert await group.call_one("any", "echo", "x") == "x"
        assert [part async for part in group.stream(1, "count", 3)] == [0, 1, 2]
        return group.pids


def test_a_group_lives_in_the_loop_of_a_thread(
    run_async: Callable[[Coroutine[Any, Any, Any]], Any], leaves_nothing: object
) -> None:
    """While another has one in the main thread's."""
    outcomes: list[Any] = []
    thread = threading.Thread(target=lambda: outcomes.append(asyncio.run(use("sync"))))
    thread.start()
    here = run_async(use("async"))
    thread.join()
    assert not set(here) & set(outcomes[0])


@MODULE
async def test_a_fast_stream_lets_the_loop_turn(group: WorkerGroup[Any]) -> None:
    """What a worker has published while the loop was busy is served in portions."""
    parts = group.stream(0, "count", 1000)
    assert await parts.__anext__() == 0
    link = group._crew._berths[0].link
    assert link is not None
    (call,) = link.calls.values()
    until(lambda: link._replies.statistics().published > 900 * 128)
    grown = []
    while not call.ended:
        before = len(call.sink._ready)  # type: ignore[attr-defined]
        await asyncio.sleep(0)
        grown.append(len(call.sink._ready) - before)  # type: ignore[attr-defined]
    assert max(grown) < 200
    assert [part async for part in parts] == list(range(1, 1000))
