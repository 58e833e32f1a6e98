"""No orphans: however the group's own process ends, its workers do, and nothing hangs.

Assumption: a worker whose parent was killed ends by itself, so the tests wait for that and need no clock of their own.
"""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest
from ends import until
from programs import Program
from traces import Traces, is_gone

METHODS = ["spawn", "forkserver", "fork"]

PRELUDE = """
    import asyncio, signal, threading
    sys.path.append(os.path.join(os.environ["TESTS"], "workers"))
    import mortal, traces as tracing
    from aiospin.workers import WorkerGroup

    traces = tracing.Traces(arguments["folder"])

    def group(kind=mortal.Mortal, n=1, **options):
        return traces.group(kind, n, start_method=arguments["method"], **options)

    def forever():
        return asyncio.get_running_loop().create_future()
"""


def play(traces: Traces, method: str, text: str, **arguments: Any) -> Program:
    """Run a program that has a group; warnings go unheard where forks in threads would be warned of."""
    given = {"folder": str(traces.folder), "method": method, **arguments}
    return Program(PRELUDE + text, given, warnings=None)


def ended(pids: list[int]) -> None:
    """Return once all of them have ended."""
    until(lambda: all(map(is_gone, pids)))


# killed


@pytest.mark.parametrize("method", METHODS)
def test_a_killed_parent_leaves_no_orphans(traces: Traces, method: str) -> None:
    """Idle workers, those in a sync method, and those in an event loop."""
    text = """
    async def work():
        async with group(n=2) as sync, group(mortal.AsyncMortal) as beside:
            calls = [asyncio.ensure_future(sync.call_one(0, "hold", "sync")),
                     asyncio.ensure_future(beside.call_one(0, "hold", "beside"))]
            await traces.seen("began sync")
            await traces.seen("began beside")
            say([*sync.pids, *beside.pids])
            await forever()

    asyncio.run(work())
    """
    with play(traces, method, text) as program:
        pids = program.hear()
        program.signal(signal.SIGKILL)
        ended(pids)
    assert traces.after("ended") == []


@pytest.mark.parametrize("method", METHODS)
def test_a_parent_that_is_killed_while_a_worker_starts_leaves_no_orphan(traces: Traces, method: str) -> None:
    text = """
    async def work():
        entering = asyncio.ensure_future(group(mortal.Slow, 2).__aenter__())
        await tracing.eventually(lambda: len(traces.after("making")) == 2)
        say(traces.after("making"))
        await entering

    asyncio.run(work())
    """
    with play(traces, method, text) as program:
        pids = list(map(int, program.hear()))
        program.signal(signal.SIGKILL)
        ended(pids)
    assert traces.after("made") == []


@pytest.mark.parametrize("method", METHODS)
def test_a_fork_of_the_parent_that_lives_on_keeps_no_orphan(traces: Traces, method: str) -> None:
    """It has inherited the parent's descriptors, and with them what multiprocessing watches."""
    text = """
    async def work():
        async with group() as workers:
            child = os.fork()
            if child == 0:
                while True:
                    signal.pause()
            say([*workers.pids, child])
            await forever()

    asyncio.run(work())
    """
    with play(traces, method, text) as program:
        *pids, child = program.hear()
        try:
            program.signal(signal.SIGKILL)
            ended(pids)
            assert not is_gone(child)
        finally:
            os.kill(child, signal.SIGKILL)


# ended without closing


@pytest.mark.parametrize(
    ("how", "method"),
    [
        ("end", "spawn"),
        ("end", "forkserver"),
        ("end", "fork"),
        ("raise", "spawn"),
        ("exit", "spawn"),
        ("fall", "spawn"),
    ],
)
def test_a_group_that_was_never_closed_holds_nobody(traces: Traces, method: str, how: str) -> None:
    """The loop is closed under it, a call runs, and the program ends as it would have."""
    text = """
    async def work():
        global kept, running
        kept = await group(n=2).__aenter__()
        running = asyncio.ensure_future(kept.call_one(0, "hold", "for ever"))
        await traces.seen("began for ever")
        say(kept.pids)
        if arguments["how"] == "raise":
            raise ZeroDivisionError
        if arguments["how"] == "fall":
            sys.exit(9)

    asyncio.run(work())
    if arguments["how"] == "exit":
        sys.exit(9)
    """
    with play(traces, method, text, how=how) as program:
        pids = program.hear()
        assert program.wait() == {"end": 0, "raise": 1, "exit": 9, "fall": 9}[how]
        complaints = program.complaints()
        ended(pids)
    assert complaints.strip().splitlines()[-1:] == (["ZeroDivisionError"] if how == "raise" else [])
    assert traces.after("ended") == []


def test_a_loop_that_is_closed_while_workers_start_ends_them(traces: Traces) -> None:
    text = """
    async def work():
        global kept
        kept = group(mortal.Slow)
        entering = asyncio.ensure_future(kept.__aenter__())
        await tracing.eventually(lambda: traces.after("making"))
        say(traces.after("making"))
        asyncio.get_running_loop().stop()

    loop = asyncio.SelectorEventLoop()
    task = loop.create_task(work())
    loop.run_forever()
    loop.close()
    hear()
    """
    with play(traces, "spawn", text) as program:
        pids = list(map(int, program.hear()))
        ended(pids)  # the program has not
        program.say()
        assert program.wait() == 0
    assert traces.after("made") == []


# forks of the parent


@pytest.mark.parametrize("uses", [False, True])
def test_a_forked_child_disturbs_nothing(traces: Traces, uses: bool) -> None:
    """Not by its mere existence and end, and not by using what it has inherited: that is refused, closing is quiet."""
    text = """
    import multiprocessing
    import aiospin

    async def use():
        for call in (kept.call("pid"), kept.call_one(0, "pid"), kept.call_one("any", "pid"), kept.restart(0)):
            try:
                await call
            except aiospin.ForkedUse:
                continue
            raise AssertionError("a call by a child")
        await kept.aclose()
        await kept.__aexit__(ValueError, ValueError(), None)

    def child():
        if arguments["use"]:
            asyncio.run(use())

    async def work():
        global kept
        async with group(n=2) as kept:
            pids = await kept.call("pid")
            calls = [asyncio.ensure_future(kept.call_one(0, "hold", "held")) for _ in range(3)]
            await traces.seen("began held")
            forked = multiprocessing.get_context("fork").Process(target=child)
            forked.start()
            forked.join()
            say(forked.exitcode)
            traces.open("held")
            say(await asyncio.gather(*calls))
            say(await kept.call("pid") == pids)

    asyncio.run(work())
    """
    with play(traces, "spawn", text, use=uses) as program:
        assert program.hear() == 0, program.complaints()
        assert program.hear() == ["held"] * 3
        assert program.hear() is True
        assert program.wait() == 0
    assert sorted(traces.after("closed")) == sorted(traces.after("made"))
