"""What a worker finds when it starts: thread counts, CPUs, and a wait policy that knows how many share them."""

from __future__ import annotations

import asyncio
import importlib
import os
from typing import Any

import pytest
from mortal import Mortal
from traces import Traces

from aiospin import WaitPolicy
from aiospin._preflight import usable_cpus
from aiospin.workers import StartFailed, WorkerGroup, _process

METHODS = ["spawn", "forkserver", "fork"]
COUNTS = _process.THREAD_COUNTS
forks = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    """As most users have it."""
    for name in COUNTS:
        monkeypatch.delenv(name, raising=False)


# thread counts


@forks
@pytest.mark.parametrize("method", METHODS)
async def test_thread_counts_are_the_workers_alone(
    traces: Traces, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user's own setting wins, a later group may want another, and the parent's environment stays as it was."""
    monkeypatch.setenv("MKL_NUM_THREADS", "11")
    before = dict(os.environ)
    async with (
        traces.group(Mortal, threads=3, start_method=method) as three,
        traces.group(Mortal, threads=5, start_method=method) as five,
    ):
        assert dict(os.environ) == before
        for group, count in ((three, "3"), (five, "5")):
            expected = {**dict.fromkeys(COUNTS, count), "MKL_NUM_THREADS": "11"}
            assert await group.call_one(0, "environment", *COUNTS) == expected
        await three.restart(0)
        assert (await three.call_one(0, "environment", "OMP_NUM_THREADS")) == {"OMP_NUM_THREADS": "3"}
    assert dict(os.environ) == before


async def test_groups_that_start_at_once_do_not_mix_their_thread_counts(traces: Traces) -> None:
    groups = [traces.group(Mortal, threads=count, start_method="spawn") for count in (2, 3, 4)]
    before = dict(os.environ)
    try:
        await asyncio.gather(*(group.start() for group in groups))
        assert dict(os.environ) == before
        found = [await group.call_one(0, "environment", "OMP_NUM_THREADS") for group in groups]
        assert found == [{"OMP_NUM_THREADS": count} for count in "234"]
    finally:
        await asyncio.gather(*(group.aclose() for group in groups))


@pytest.mark.parametrize(
    ("threads", "cpus", "expected"),
    [
        (None, None, None),
        (6, None, "6"),
        ("share", None, str(max(1, usable_cpus() // 2))),
        ("share", "first", "1"),
    ],
)
async def test_each_has_its_part_of_the_cpus(traces: Traces, threads: Any, cpus: Any, expected: str | None) -> None:
    if cpus == "first":
        cpus = [{min(os.sched_getaffinity(0))}] * 2
    async with traces.group(Mortal, 2, threads=threads, cpus=cpus) as group:
        assert await group.call("environment", *COUNTS) == [dict.fromkeys(COUNTS, expected)] * 2


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
async def test_thread_counts_are_there_before_the_first_import(
    method: str, leaves_nothing: object, forkserver: None, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Libraries read them once, when they are imported."""
    name = f"early_{method}"
    (tmp_path / f"{name}.py").write_text(
        "import os\n\nSEEN = os.environ.get('OMP_NUM_THREADS')\n\n"
        "class Early:\n    def seen(self):\n        return SEEN\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    module = importlib.import_module(name)
    assert module.SEEN is None
    async with WorkerGroup(module.Early, 1, threads=3, start_method=method) as group:
        assert await group.call_one(0, "seen") == "3"


async def test_a_start_that_fails_leaves_the_environment_alone(traces: Traces, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process cannot be made, at the moment when the variables are set for it."""
    before = dict(os.environ)
    seen: list[str | None] = []

    def refuse(*arguments: object) -> int:
        seen.append(os.environ.get("OMP_NUM_THREADS"))
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr("multiprocessing.util.spawnv_passfds", refuse)
    with pytest.raises(StartFailed, match=r"worker 0 .* Resource temporarily unavailable"):
        await traces.group(Mortal, threads=3, start_method="spawn").start()
    assert seen == ["3"]
    assert dict(os.environ) == before


# CPUs


@forks
@pytest.mark.parametrize("method", METHODS)
async def test_workers_are_spread_over_the_cpus(traces: Traces, method: str) -> None:
    mine = sorted(os.sched_getaffinity(0))
    size = len(mine) + 1 if method == "fork" else 2
    async with traces.group(Mortal, size, cpus="spread", start_method=method) as group:
        assert await group.call("cpus") == [[mine[rank % len(mine)]] for rank in range(size)]
        await group.restart(1)
        assert await group.call_one(1, "cpus") == [mine[1 % len(mine)]]
    assert sorted(os.sched_getaffinity(0)) == mine


async def test_each_rank_may_have_a_set_of_cpus(traces: Traces) -> None:
    mine = os.sched_getaffinity(0)
    chosen = [{min(mine)}, mine, frozenset({max(mine)})]
    async with traces.group(Mortal, 3, cpus=chosen) as group:
        assert await group.call("cpus") == [sorted(of_one) for of_one in chosen]


@pytest.mark.parametrize(
    ("cpus", "message"),
    [
        ([{0}], r"a set of CPUs for each of 2 workers, got 1"),
        ([set(), {0}], r"must be among those that this process may use \(.*\), got \[\]"),
        ([{0}, {4095}], r"must be among those .*, got \[4095\]"),
    ],
)
def test_sets_that_cannot_be_had_are_refused(cpus: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        WorkerGroup(Mortal, 2, cpus=cpus)


@pytest.mark.parametrize("threads", [0, -1, True, 1.5, "all"])
def test_thread_counts_that_make_no_sense_are_refused(threads: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="threads must be"):
        WorkerGroup(Mortal, 1, threads=threads)


# the policy


def policies_of(n: int, policy: Any, cpus: Any = None) -> list[WaitPolicy]:
    """What the workers of such a group would wait by."""
    return [making.policy for making in WorkerGroup(Mortal, n, policy=policy, cpus=cpus)._crew._makings]


def test_workers_with_a_cpu_each_wait_as_they_were_told() -> None:
    for name in ("eco", "balanced", "latency"):
        assert {policy.name for policy in policies_of(1, name)} == {name}
    assert [policy.parks for policy in policies_of(1, "pinned")] == [False]


def test_those_who_share_cpus_share_the_time_for_watching() -> None:
    """Four on one CPU may burn a quarter each of what one might."""
    one = [{min(os.sched_getaffinity(0))}]
    alone = policies_of(1, "latency", one)[0]
    together = policies_of(4, "latency", one * 4)
    assert [policy.core_share for policy in together] == [alone.core_share / 4] * 4
    assert all(policy.maximum_us == alone.maximum_us and policy.parks for policy in together)
    many = 4 * usable_cpus()
    assert policies_of(many, "balanced")[0].core_share == WaitPolicy("balanced").core_share / 4


def test_more_workers_than_cpus_that_never_park_are_refused() -> None:
    one = [{min(os.sched_getaffinity(0))}] * 2
    with pytest.raises(ValueError, match="policy 'pinned' never parks: 2 workers would spin on 1 CPUs"):
        policies_of(2, "pinned", one)
    many = usable_cpus() + 1
    with pytest.raises(ValueError, match=f"{many} workers would spin on {usable_cpus()} CPUs"):
        policies_of(many, "pinned")


async def test_a_crowd_on_one_cpu_answers(traces: Traces) -> None:
    """Eight workers share a CPU and still take turns."""
    one = {min(os.sched_getaffinity(0))}
    async with traces.group(Mortal, 8, cpus=[one] * 8, policy="latency") as group:
        for number in range(20):
            assert await group.call("note", str(number)) == [str(number)] * 8
    assert set(traces.counted("ran").values()) == {8}
