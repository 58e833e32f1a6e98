"""The start of a group: what fails says who and why, what takes long is told, and nothing is left of either."""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest
from mortal import WAYS_TO_DIE, AsyncMortal, Broken, Mixed, Mortal, Slow
from programs import Program
from traces import Traces, eventually, is_gone

from aiospin import AiospinError, _loop
from aiospin.workers import RemoteTraceback, Restart, StartFailed, WorkerGroup, _link, _process

METHODS = ["spawn", "forkserver", "fork"]
forks = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


async def failure_of(group: WorkerGroup[Any]) -> StartFailed:
    """Enter a group that cannot start."""
    with pytest.raises(StartFailed) as caught:
        await group.__aenter__()
    assert isinstance(caught.value, AiospinError)
    assert group.pids == (0,) * group.size
    return caught.value


# what fails


async def test_a_constructor_that_raises_is_the_cause(traces: Traces) -> None:
    """As itself, with its traceback in the worker."""
    error = await failure_of(traces.group(Broken, start_method="spawn"))
    assert (error.rank, str(error)) == (0, "worker 0 could not be started: ValueError: 'nothing' is broken")
    assert isinstance(error.__cause__, ValueError)
    assert error.__cause__.args == ("'nothing' is broken",)
    trace = error.__cause__.__cause__
    assert isinstance(trace, RemoteTraceback)
    assert "raise ValueError(\"'nothing' is broken\")" in str(trace)


async def test_a_module_that_is_not_there_for_the_worker(
    traces: Traces, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the parent could import the worker may not, and that is named."""
    folder = tmp_path_factory.mktemp("modules")
    (folder / "soon_gone.py").write_text("class Gone:\n    pass\n")
    monkeypatch.syspath_prepend(str(folder))
    import soon_gone

    group = WorkerGroup(soon_gone.Gone, 1)
    (folder / "soon_gone.py").write_text("import nothing_of_that_name\n")
    error = await failure_of(group)
    assert str(error) == ("worker 0 could not be started: ModuleNotFoundError: No module named 'nothing_of_that_name'")
    assert isinstance(error.__cause__, ModuleNotFoundError)
    assert "soon_gone.py" in str(error.__cause__.__cause__)


@pytest.mark.parametrize("how", WAYS_TO_DIE)
async def test_a_process_that_ends_while_it_makes_its_object(traces: Traces, how: str) -> None:
    traces.open(f"end by {how}")
    error = await failure_of(traces.group(Broken))
    if how == "exit":
        assert str(error) == "worker 0 could not be started: SystemExit: 5"
    else:
        assert str(error) == f"worker 0 could not be started: it {WAYS_TO_DIE[how]} while it constructed its object"
        assert error.__cause__ is None


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_a_process_that_is_killed_while_it_makes_its_object(traces: Traces, number: signal.Signals) -> None:
    entering = asyncio.ensure_future(failure_of(traces.group(Slow, start_method="spawn")))
    await eventually(lambda: traces.after("making"))
    os.kill(int(traces.after("making")[0]), number)
    error = await entering
    assert error.reason == f"it was killed by {number.name} while it constructed its object"


@pytest.mark.parametrize("guarded", [True, False])
def test_a_program_that_cannot_be_imported_is_told_what_may_be_missing(traces: Traces, guarded: bool) -> None:
    """Spawned children import the program again: unguarded it would start its group again; or it is not there."""
    guard = "if __name__ == '__main__':\n    " if guarded else ""
    program = f"""
import asyncio, os, sys
from aiospin.workers import StartFailed, WorkerGroup

class Plain:
    pass

async def work():
    {"os.unlink(__file__)" if guarded else ""}
    try:
        async with WorkerGroup(Plain, 1):
            pass
    except StartFailed as error:
        print(error)

{guard}asyncio.run(work())
"""
    path = traces.folder / "program.py"
    path.write_text(program)
    text = "import subprocess; say(subprocess.run([sys.executable, arguments], capture_output=True, text=True).stdout)"
    with Program(text, str(path), warnings=None) as running:
        said = running.hear()
        running.finish()
    assert said == (
        "worker 0 could not be started: it ended with exit code 1 before it ran; "
        "is the group made under `if __name__ == '__main__':`?\n"
    )


def test_what_cannot_be_pickled_is_refused_before_anything_starts(traces: Traces) -> None:
    with pytest.raises((AttributeError, pickle.PicklingError, TypeError)):
        WorkerGroup(lambda: None, 1)
    with pytest.raises((AttributeError, pickle.PicklingError, TypeError)):
        WorkerGroup(Mortal, 1, args=(traces.folder, (number for number in range(3))))


async def test_one_of_three_fails_and_the_others_are_ended(traces: Traces) -> None:
    """One is up by then, and its object is closed; the other is still being made."""
    group = WorkerGroup(Mixed, 3, args=(str(traces.folder),), start_method="forkserver")
    entering = asyncio.ensure_future(failure_of(group))
    await eventually(lambda: traces.after("made") and traces.after("making") and traces.after("failing"))
    await eventually(lambda: "up" in {worker.state for worker in group.statistics().workers})
    pids = [int(pid) for word in ("made", "making", "failing") for pid in traces.after(word)]
    assert len(pids) == 3
    traces.open("fail")
    error = await entering
    assert "ValueError: 'nothing' is broken" in str(error)
    assert all(map(is_gone, pids))
    assert traces.after("closed") == traces.after("made")


@pytest.mark.parametrize("fail_at", [1, 2, 3])
async def test_a_process_that_cannot_be_made(traces: Traces, fail_at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    real = _process.start
    asked: list[str] = []

    def start(method: str, name: str, *rest: Any) -> Any:
        asked.append(name)
        if len(asked) == fail_at:
            raise OSError(11, "Resource temporarily unavailable")
        return real(method, name, *rest)

    monkeypatch.setattr(_process, "start", start)
    error = await failure_of(traces.group(Mortal, 3))
    rank = int(asked[fail_at - 1].rpartition("-")[2])
    assert error.rank == rank
    assert str(error) == (
        f"worker {rank} could not be started: its process could not be made: "
        "[Errno 11] Resource temporarily unavailable"
    )
    assert isinstance(error.__cause__, OSError)


# what takes long


async def test_start_timeout_names_those_that_are_late(traces: Traces) -> None:
    group = WorkerGroup(Mixed, 3, args=(str(traces.folder), "slow"), start_method="forkserver", start_timeout=0.5)
    with pytest.raises(TimeoutError, match=r"^not ready within 0\.5 s: worker \d(, \d)*$") as caught:
        await group.__aenter__()
    late = str(caught.value).partition("worker ")[2].split(", ")
    assert late == sorted(late)
    assert len(late) >= 2
    assert all(is_gone(int(pid)) for pid in traces.after("making"))
    assert group.pids == (0, 0, 0)


async def test_a_slow_start_is_told_again_and_again(
    traces: Traces, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """At doubling times; here all times are short."""
    monkeypatch.setattr(_link, "_STARTING_TOLD_AFTER", 0.01)
    real = _loop.Station.begin
    monkeypatch.setattr(_loop.Station, "begin", lambda self, wait, period: real(self, wait, period / 100))
    entering = asyncio.ensure_future(traces.group(Slow).__aenter__())
    await eventually(lambda: traces.after("making"))
    pid = traces.after("making")[0]
    beginning = f"worker 0 (pid {pid}) is importing and constructing its object, "
    await eventually(lambda: sum(line.startswith(beginning) for line in caplog.messages) >= 2)
    assert all(record.levelno == logging.WARNING for record in caplog.records)
    traces.open("go")
    group = await entering
    told = len(caplog.messages)
    assert await group.call_one(0, "note", "well") == "well"
    await group.aclose()
    assert len(caplog.messages) == told


# given up by the one who starts it

STAGES: dict[str, Callable[[Traces], bool]] = {
    "before a process is made": lambda traces: True,
    "while objects are made": lambda traces: len(traces.after("making")) == 2,
}


@forks
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("stage", STAGES)
async def test_cancelling_a_start_leaves_nothing(traces: Traces, stage: str, method: str) -> None:
    entering = asyncio.ensure_future(traces.group(Slow, 2, start_method=method).__aenter__())
    await asyncio.sleep(0)
    await eventually(lambda: STAGES[stage](traces))
    entering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await entering
    assert all(is_gone(int(pid)) for pid in traces.after("making"))
    assert traces.after("made") == []


@pytest.mark.parametrize("again", [False, True])
async def test_cancelling_while_a_process_is_being_made(
    traces: Traces, again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1. A thread makes the process. 2. The start is cancelled, once or twice. 3. The process is there, and ends."""
    real = _process.start
    entered, leave = threading.Event(), threading.Event()

    def start(*arguments: Any) -> Any:
        entered.set()
        leave.wait()
        process = real(*arguments)
        traces.leave("process", process.pid)
        return process

    monkeypatch.setattr(_process, "start", start)
    entering = asyncio.ensure_future(traces.group(Slow).__aenter__())
    await eventually(entered.is_set)
    entering.cancel()
    await asyncio.sleep(0)
    if again:
        entering.cancel()
        await asyncio.sleep(0)
    leave.set()
    with pytest.raises(asyncio.CancelledError):
        await entering
    await eventually(lambda: traces.after("process"))
    await eventually(lambda: is_gone(int(traces.after("process")[0])))
    assert traces.after("made") == []


# a worker that was up


async def test_a_successor_that_cannot_be_made_is_tried_again_and_then_given_up(
    traces: Traces, caplog: pytest.LogCaptureFixture
) -> None:
    """Calls wait meanwhile, and fail with the last reason."""
    async with traces.group(Mortal, 2, restart=Restart(first=0.001, factor=1.0, attempts=3)) as group:
        traces.open("refuse")
        os.kill(group.pids[0], signal.SIGKILL)
        waiting = [asyncio.ensure_future(group.call_one(0, "note", "never")) for _ in range(3)]
        everybody = asyncio.ensure_future(group.call("note", "everybody"))
        for call in (*waiting, everybody):
            with pytest.raises(StartFailed, match="worker 0 could not be started: ValueError: refused") as caught:
                await call
            assert isinstance(caught.value.__cause__, ValueError)
        assert await group.call_one("any", "note", "well") == "well"
        state = group.statistics().workers[0]
        assert (state.state, state.starts, state.pid) == ("given up", 4, 0)
    told = [line for line in caplog.messages if "refused" in line]
    assert [line.partition("; ")[2] for line in told] == [
        *["a successor starts in 0.001 s"] * 2,
        "the rank is given up",
    ]


@pytest.mark.parametrize("kind", [Mortal, AsyncMortal])
async def test_a_successor_that_can_be_made_in_the_end_takes_what_waits(
    traces: Traces, kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twice there is no memory for its process."""
    real = _process.start
    failing = [OSError(12, "no memory")] * 2

    def start(*arguments: Any) -> Any:
        if failing:
            raise failing.pop()
        return real(*arguments)

    async with traces.group(kind, restart=Restart(first=0.0, attempts=3)) as group:
        monkeypatch.setattr(_process, "start", start)
        os.kill(group.pids[0], signal.SIGKILL)
        assert await group.call_one("any", "note", "well") == "well"
        assert not failing
    assert traces.after("ran") == ["well"]
