"""Groups that the tests of a module share, on each kind of loop, and a check that no test leaves a call behind.

Guarantee: a test that was given `group`, `plain` or `looped` ends with no call pending, or fails.
Assumption: whoever uses these says `pytestmark = pytest.mark.asyncio(loop_scope="module")`, and kills no worker.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import pytest
import pytest_asyncio
import uvloop
from hosted import KINDS, Looped, Plain
from stage import Stage, settle

import aiospin
from aiospin.workers import WorkerGroup

RING = 1 << 18


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """One kind of loop per backend: starting processes for both would take twice the time."""
    if aiospin.backend == "native":
        return {"uvloop": uvloop.new_event_loop}
    return {"asyncio": asyncio.SelectorEventLoop}


Groups = Mapping[str, WorkerGroup[Any]]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage() -> AsyncIterator[Stage]:
    """Where the methods of these groups enter."""
    async with Stage() as stage:
        yield stage


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def groups(stage: Stage) -> AsyncIterator[Groups]:
    """Two workers of each kind."""
    async with (
        WorkerGroup(Plain, 2, args=(stage.address,), capacity=RING, pipeline=4) as plain,
        WorkerGroup(Looped, 2, args=(stage.address,), capacity=RING) as looped,
    ):
        yield {"sync": plain, "async": looped}


@pytest.fixture(params=sorted(KINDS))
def kind(request: pytest.FixtureRequest) -> str:
    """Run a test with sync and with async methods."""
    chosen: str = request.param
    return chosen


@pytest_asyncio.fixture(loop_scope="module")
async def group(groups: Groups, kind: str) -> AsyncIterator[WorkerGroup[Any]]:
    """Of each kind by turns."""
    yield groups[kind]
    await settle(groups[kind])


@pytest_asyncio.fixture(loop_scope="module")
async def plain(groups: Groups) -> AsyncIterator[WorkerGroup[Plain]]:
    """Sync methods."""
    yield groups["sync"]
    await settle(groups["sync"])


@pytest_asyncio.fixture(loop_scope="module")
async def looped(groups: Groups) -> AsyncIterator[WorkerGroup[Looped]]:
    """Async methods."""
    yield groups["async"]
    await settle(groups["async"])
