"""The example's batcher: what is sent when, and that the items of a batch do not suffer for each other."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from running_server import importable

importable()

from model_server.batcher import Batcher, Done, Draining, Overloaded  # noqa: E402


class Runner:
    """Notes what it is given, and answers when it is let."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.deadlines: list[float | None] = []
        self.cancelled: list[list[str]] = []
        self.gate = asyncio.Event()
        self.poison = ""
        self._more = asyncio.Condition()

    async def __call__(self, batch: Sequence[str], deadline: float | None) -> Sequence[str]:
        async with self._more:
            self.batches.append(list(batch))
            self.deadlines.append(deadline)
            self._more.notify_all()
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            async with self._more:
                self.cancelled.append(list(batch))
                self._more.notify_all()
            raise
        if self.poison in batch:
            raise ValueError(f"{self.poison} is bad")
        return [item.upper() for item in batch]

    async def until(self, condition: Callable[[], bool]) -> None:
        async with self._more:
            await self._more.wait_for(condition)


def make(runner: Any, **change: Any) -> Batcher[str, str]:
    return Batcher(runner, **{"max_batch": 3, "max_wait": 0.0, "max_pending": 100, "workers": 1, **change})


async def finish(*tasks: asyncio.Task[Any]) -> list[Any]:
    return await asyncio.gather(*tasks, return_exceptions=True)


def ask(batcher: Batcher[str, str], *items: str, deadline: float | None = None) -> list[asyncio.Task[Done[str]]]:
    return [asyncio.ensure_future(batcher.submit(item, deadline)) for item in items]


async def test_each_item_gets_its_own_answer() -> None:
    runner = Runner()
    runner.gate.set()
    answers = await asyncio.gather(*ask(make(runner), *"abcdefg"))
    assert [answer.result for answer in answers] == list("ABCDEFG")
    assert sorted(item for batch in runner.batches for item in batch) == list("abcdefg")
    assert max(map(len, runner.batches)) == 3
    assert all(answer.batch == 3 for answer in answers[:3])


async def test_an_idle_worker_gets_what_is_there_at_once() -> None:
    runner = Runner()
    tasks = ask(make(runner, max_wait=3600.0), "a", "b")
    await runner.until(lambda: runner.batches == [["a", "b"]])
    runner.gate.set()
    await asyncio.gather(*tasks)


async def test_idle_workers_share_what_is_there() -> None:
    runner = Runner()
    tasks = ask(make(runner, workers=3, max_batch=8), *"abcdef")
    await runner.until(lambda: len(runner.batches) == 3)
    assert runner.batches == [["a", "b"], ["c", "d"], ["e", "f"]]
    runner.gate.set()
    await asyncio.gather(*tasks)


async def test_while_all_are_busy_a_batch_waits_for_company() -> None:
    runner = Runner()
    batcher = make(runner, max_wait=0.05)
    first = ask(batcher, "a")
    await runner.until(lambda: len(runner.batches) == 1)
    began = time.monotonic()
    rest = ask(batcher, "b", "c")
    await runner.until(lambda: len(runner.batches) == 2)
    assert time.monotonic() - began >= 0.04
    assert runner.batches[1] == ["b", "c"]
    runner.gate.set()
    await asyncio.gather(*first, *rest)


async def test_a_full_batch_waits_no_longer() -> None:
    runner = Runner()
    batcher = make(runner, max_wait=3600.0)
    first = ask(batcher, "a")
    await runner.until(lambda: len(runner.batches) == 1)
    rest = ask(batcher, *"bcd")
    await runner.until(lambda: len(runner.batches) == 2)
    assert runner.batches[1] == ["b", "c", "d"]
    runner.gate.set()
    await asyncio.gather(*first, *rest)


async def test_what_comes_while_all_are_busy_is_kept_back() -> None:
    runner = Runner()
    batcher = make(runner, max_batch=1)
    tasks = ask(batcher, *"abcde")
    await runner.until(lambda: len(runner.batches) == 2)
    assert (batcher.waiting, batcher.pending) == (3, 5)
    runner.gate.set()
    await asyncio.gather(*tasks)
    assert (batcher.waiting, batcher.pending) == (0, 0)


async def test_a_cancelled_item_leaves_the_others_alone() -> None:
    runner = Runner()
    tasks = ask(make(runner), *"abc")
    await runner.until(lambda: bool(runner.batches))
    tasks[1].cancel()
    runner.gate.set()
    a, b, c = await finish(*tasks)
    assert (a.result, c.result) == ("A", "C")
    assert isinstance(b, asyncio.CancelledError)
    assert runner.cancelled == []


async def test_a_batch_that_nobody_waits_for_is_given_up() -> None:
    runner = Runner()
    batcher = make(runner)
    tasks = ask(batcher, *"abc")
    await runner.until(lambda: bool(runner.batches))
    for task in tasks:
        task.cancel()
    await finish(*tasks)
    await runner.until(lambda: runner.cancelled == [["a", "b", "c"]])
    assert batcher.pending == 0


async def test_an_item_that_is_cancelled_before_it_is_sent_is_not_sent() -> None:
    runner = Runner()
    batcher = make(runner, max_batch=1)
    tasks = ask(batcher, *"abcd")
    await runner.until(lambda: len(runner.batches) == 2)
    tasks[2].cancel()
    await finish(tasks[2])
    runner.gate.set()
    await finish(*tasks)
    assert runner.batches == [["a"], ["b"], ["d"]]


async def test_one_bad_item_fails_alone() -> None:
    runner = Runner()
    runner.gate.set()
    runner.poison = "b"
    a, b, c = await finish(*ask(make(runner), *"abc"))
    assert (a.result, c.result) == ("A", "C")
    assert isinstance(b, ValueError)
    assert runner.batches == [["a", "b", "c"], ["a"], ["b"], ["c"]]


async def test_a_single_item_is_not_tried_again() -> None:
    runner = Runner()
    runner.gate.set()
    runner.poison = "a"
    (error,) = await finish(*ask(make(runner), "a"))
    assert isinstance(error, ValueError)
    assert runner.batches == [["a"]]


async def test_a_late_item_is_told_so_and_the_others_go_on() -> None:
    runner = Runner()
    batcher = make(runner)
    soon = time.monotonic() + 0.05
    late, patient = *ask(batcher, "a", deadline=soon), *ask(batcher, "b")
    with pytest.raises(TimeoutError, match="no answer within"):
        await late
    assert runner.deadlines == [None]  # somebody waits for ever
    runner.gate.set()
    assert (await patient).result == "B"


async def test_the_latest_deadline_of_a_batch_travels_with_it() -> None:
    runner = Runner()
    batcher = make(runner)
    now = time.monotonic()
    tasks = [*ask(batcher, "a", deadline=now + 60), *ask(batcher, "b", deadline=now + 90)]
    await runner.until(lambda: bool(runner.batches))
    runner.gate.set()
    await asyncio.gather(*tasks)
    assert runner.deadlines == [now + 90]


async def test_a_deadline_that_has_passed_already() -> None:
    with pytest.raises(TimeoutError):
        await make(Runner()).submit("a", time.monotonic() - 1)


async def test_too_many_are_refused_with_their_number() -> None:
    runner = Runner()
    batcher = make(runner, max_pending=2)
    tasks = ask(batcher, "a", "b")
    await runner.until(lambda: bool(runner.batches))
    with pytest.raises(Overloaded, match="2 files are waiting") as refused:
        await batcher.submit("c")
    assert refused.value.pending == 2
    runner.gate.set()
    await asyncio.gather(*tasks)
    assert (await batcher.submit("c")).result == "C"


async def test_draining_ends_what_was_accepted_and_refuses_the_rest() -> None:
    runner = Runner()
    batcher = make(runner, max_batch=1, max_wait=3600.0)
    tasks = ask(batcher, *"abcd")
    await runner.until(lambda: bool(runner.batches))
    draining = asyncio.ensure_future(batcher.drain())
    await asyncio.wait([draining], timeout=0)
    with pytest.raises(Draining):
        await batcher.submit("e")
    runner.gate.set()
    await draining
    assert [answer.result for answer in await asyncio.gather(*tasks)] == list("ABCD")


async def test_draining_gives_up_after_a_while() -> None:
    runner = Runner()
    batcher = make(runner)
    tasks = ask(batcher, "a")
    await runner.until(lambda: bool(runner.batches))
    await batcher.drain(timeout=0.01)
    assert [type(error) for error in await finish(*tasks)] == [asyncio.CancelledError]
    assert runner.cancelled == [["a"]]


async def test_a_result_that_is_missing_is_an_error_that_says_so() -> None:
    async def run(batch: Sequence[str], deadline: float | None) -> Sequence[str]:
        return []

    with pytest.raises(RuntimeError, match="a batch of 1 got 0 results"):
        await make(run).submit("a")


@pytest.mark.parametrize(
    "change", [{"max_batch": 0}, {"max_pending": 0}, {"workers": 0}, {"max_wait": -1.0}, {"max_wait": float("nan")}]
)
async def test_a_wrong_setting_is_named(change: dict[str, Any]) -> None:
    (name,) = change
    with pytest.raises(ValueError, match=name):
        make(Runner(), **change)
