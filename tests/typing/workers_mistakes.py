"""What the types of worker groups must refuse: each line that ends in a `wrong` comment is an error to mypy and to
pyright. Checked and never run."""

from __future__ import annotations

from workers_samples import Model

from aiospin.workers import WorkerGroup


async def mistakes(group: WorkerGroup[Model]) -> None:
    await group.call(Model.predict)  # wrong
    await group.call(Model.predict, 5)  # wrong
    await group.call_one(0, Model.predict, "x", worst=1)  # wrong
    await group.call_one("some", Model.size)  # wrong
    await group.call_one(0, Model.fetch, b"x")  # wrong
    await group.call_one(0, Model.size, 1)  # wrong
    group.stream(0, Model.parts, "3")  # wrong
    group.options(delivery="exactly_once")  # wrong
    group.options(timeout="1")  # wrong
    group.options(retries=3)  # wrong
    text: str = await group.call_one(0, Model.size)  # wrong
    print(text)
    WorkerGroup(Model, "2")  # wrong
    WorkerGroup(5, 2)  # wrong
    group.statistics().pending = 3  # wrong
