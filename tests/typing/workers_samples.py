"""What the types of worker groups say, for mypy and pyright: this file is checked and never run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

from typing_extensions import assert_type

from aiospin.workers import Caller, GroupStatistics, WorkerGroup


class Model:
    """With a method of every kind."""

    def size(self) -> int:
        return 0

    def predict(self, text: str, *, best: int = 1) -> list[float]:
        return [float(len(text))] * best

    async def fetch(self, key: str) -> bytes:
        return key.encode()

    async def parts(self, n: int) -> AsyncIterator[str]:
        yield "x" * n

    def steps(self, n: int) -> Iterator[str]:
        yield "x" * n


def make(path: str) -> Model:
    return Model()


async def calls_of_a_group() -> None:
    async with WorkerGroup(Model, 2) as group:
        assert_type(group, WorkerGroup[Model])
        assert_type(await group.call(Model.predict, "x", best=3), list[list[float]])
        assert_type(await group.call(Model.size), list[int])
        assert_type(await group.call(Model.fetch, "x"), list[bytes])
        assert_type(await group.call_one(0, Model.predict, "x"), list[float])
        assert_type(await group.call_one("any", Model.fetch, key="x"), bytes)
        assert_type(group.stream(1, Model.parts, 3), AsyncIterator[str])
        async for part in group.stream("any", Model.parts, n=3):
            assert_type(part, str)
        assert_type(group.options(timeout=1.0, delivery="at_least_once"), Caller[Model])
        assert_type(await group.options(kill_after=None).call_one(0, Model.size), int)
        assert_type(group.statistics(), GroupStatistics)
        assert_type(group.pids, tuple[int, ...])
        await group.call("predict", 5, whatever=6)  # by name, nothing is known
        await group.restart(0)
    assert_type(WorkerGroup(make, 2, args=["x"]), WorkerGroup[Model])
