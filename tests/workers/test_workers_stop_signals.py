"""SIGTERM to workers, Ctrl-C to everybody, and the parent's own signal handlers, which nothing touches."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

import pytest
from mortal import AsyncMortal, AsyncStubborn, Mortal, Stubborn
from programs import Program
from traces import Traces, eventually, is_gone

from aiospin.workers import Restart, WorkerGroup

forks = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


async def succeeded(group: WorkerGroup[Any], pid: int) -> None:
    """Return once another than `pid` is up."""
    await eventually(lambda: group.pids[0] not in (0, pid) and group.statistics().workers[0].state == "up")


# SIGTERM to a worker


@pytest.mark.parametrize("kind", [Mortal, AsyncMortal])
async def test_sigterm_lets_what_runs_end_and_closes_the_object(traces: Traces, kind: Any) -> None:
    """1. One call runs, others wait in the worker and in the group. 2. SIGTERM. 3. The successor takes the others."""
    async with traces.group(kind, pipeline=1 if kind is AsyncMortal else 3, start_method="spawn") as group:
        pid = group.pids[0]
        running = asyncio.ensure_future(group.call_one(0, "hold", "running"))
        await traces.seen("began running")
        waiting = [asyncio.ensure_future(group.call_one(0, "tell_pid", str(number))) for number in range(5)]
        await asyncio.sleep(0)
        os.kill(pid, signal.SIGTERM)
        assert not running.done()
        traces.open("running")
        assert await running == "running"
        successors = await asyncio.gather(*waiting)
        assert pid not in successors
        assert set(successors) == set(group.pids)
    assert traces.after("ran") == ["0", "1", "2", "3", "4"]
    assert traces.after("closed") == [str(pid), str(successors[0])]


async def test_sigterm_waits_for_all_that_run_beside_each_other(traces: Traces) -> None:
    async with traces.group(AsyncMortal) as group:
        pid = group.pids[0]
        running = [asyncio.ensure_future(group.call_one(0, "hold", word)) for word in "ab"]
        for word in "ab":
            await traces.seen(f"began {word}")
        os.kill(pid, signal.SIGTERM)
        await succeeds_only_after(group, pid, traces, running)
        assert await group.call_one(0, "pid") != pid
    assert traces.after("cancelled") == []
    assert traces.after("closed")[0] == str(pid)


async def succeeds_only_after(
    group: WorkerGroup[Any], pid: int, traces: Traces, running: list[asyncio.Future[Any]]
) -> None:
    """Let the calls through one by one; the worker stays until the last."""
    for call, word in zip(running, "ab", strict=True):
        assert not is_gone(pid) and group.pids == (pid,)
        traces.open(word)
        assert await call == word


@pytest.mark.parametrize("kind", [Mortal, AsyncMortal])
@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
@forks
async def test_sigterm_to_an_idle_worker_is_an_orderly_end(traces: Traces, kind: Any, method: str) -> None:
    """The moment it is up, again and again, without a call: that is no failure, so no attempt is used up."""
    restart = Restart(first=0.0, attempts=1)
    async with traces.group(kind, start_method=method, restart=restart) as group:
        pids = []
        for _ in range(1 if method == "spawn" else 3):
            pids.append(group.pids[0])
            os.kill(pids[-1], signal.SIGTERM)
            await succeeded(group, pids[-1])
            assert traces.after("closed") == list(map(str, pids))
        assert await group.call_one(0, "note", "well") == "well"


@pytest.mark.parametrize("kind", [Stubborn, AsyncStubborn])
async def test_the_programs_own_handler_wins(traces: Traces, kind: Any) -> None:
    async with traces.group(kind) as group:
        pid = group.pids[0]
        os.kill(pid, signal.SIGTERM)
        await traces.seen("heard 15")
        assert await group.call_one(0, "pid") == pid
    assert traces.after("closed") == [str(pid)]


# the parent's handlers


@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
@forks
async def test_the_parents_handlers_stay_and_hear_nothing(traces: Traces, method: str) -> None:
    """Not of starts, nor of signals to workers, deaths, restarts, or the end."""
    heard: list[int] = []
    mine = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGINT, signal.SIGCHLD)
    loop = asyncio.get_running_loop()
    before_mine = {number: signal.getsignal(number) for number in mine}
    for number in mine[:-1]:
        loop.add_signal_handler(number, heard.append, int(number))
    try:
        before = {number: signal.getsignal(number) for number in signal.valid_signals()}
        wakeup = signal.set_wakeup_fd(-1)
        signal.set_wakeup_fd(wakeup)
        async with traces.group(AsyncMortal, start_method=method) as group:
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGKILL):
                pid = group.pids[0]
                os.kill(pid, signal.SIGINT)  # of no effect
                assert await group.call_one(0, "pid") == pid
                os.kill(pid, number)
                await succeeded(group, pid)
            await group.restart(0)
        assert {number: signal.getsignal(number) for number in signal.valid_signals()} == before
        still = signal.set_wakeup_fd(-1)
        signal.set_wakeup_fd(still)
        assert still == wakeup
        assert heard == []
        os.kill(os.getpid(), signal.SIGUSR1)  # and they still work
        await eventually(lambda: heard == [signal.SIGUSR1])
    finally:
        for number in mine[:-1]:
            loop.remove_signal_handler(number)
            signal.signal(number, before_mine[number])


# Ctrl-C

CTRL_C = """
    import asyncio, signal
    os.setpgid(0, 0)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.path.append(os.path.join(os.environ["TESTS"], "workers"))
    import mortal, traces as tracing

    async def work():
        traces = tracing.Traces(arguments["folder"])
        async with traces.group(getattr(mortal, arguments["kind"]), 2, start_method=arguments["method"]) as group:
            calls = [asyncio.ensure_future(group.call_one(rank, "hold", str(rank))) for rank in (0, 1)]
            for rank in (0, 1):
                await traces.seen(f"began {rank}")
            for call in calls:  # whatever becomes of them
                call.add_done_callback(lambda call: call.cancelled() or call.exception())
            try:
                say(group.pids)
                await asyncio.gather(*calls)
            finally:
                if arguments["kind"] == "Mortal":  # async calls are cancelled
                    traces.open("0")
                    traces.open("1")

    try:
        asyncio.run(work())
    except KeyboardInterrupt:
        say("interrupted")
"""


@pytest.mark.parametrize(
    ("kind", "method"), [("Mortal", "spawn"), ("AsyncMortal", "spawn"), ("Mortal", "forkserver"), ("Mortal", "fork")]
)
def test_ctrl_c_reaches_only_the_parent(traces: Traces, kind: str, method: str) -> None:
    """It is sent to the whole group of processes, as by a terminal. Workers end in order, with the group."""
    arguments = {"folder": str(traces.folder), "kind": kind, "method": method}
    with Program(CTRL_C, arguments, warnings=None) as program:
        pids = program.hear()
        os.killpg(program.pid, signal.SIGINT)
        assert program.hear() == "interrupted"
        program.finish()
    assert all(map(is_gone, pids))
    assert sorted(traces.after("closed")) == sorted(map(str, pids))
    assert sorted(traces.after("cancelled" if kind == "AsyncMortal" else "ended")) == ["0", "1"]
