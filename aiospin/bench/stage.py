"""The processes of a case: its leader, and the peers that the leader starts, each fresh, ended whatever happens.

The runner starts a leader for every single measurement (`lead`); the leader makes the line, starts peers (`Peer`),
and plays one end itself. Leaders are forked from a server that has imported the benchmark and nothing more, and peers
from their leader before it opens anything, so that all start within milliseconds. They are one process group, so that
one signal ends them.

Guarantee: when `lead` returns or raises, Ctrl-C included, every process of the case is gone. What any of them raised is
in `Failed`. Processes whose runner was killed end by themselves after LIFETIME seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Sequence
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection, wait
from types import TracebackType
from typing import Any, Final

from aiospin._children import ignore_sigint, sigint_blocked
from aiospin.bench.contract import End, Plan, Subject
from aiospin.bench.loops import run

LIFETIME: Final = 90
"""seconds after which a leader, and a peer, ends whatever it does"""
PRELOADED: Final = ["uvloop", "aiospin.bench.preloaded"]

SERVER = multiprocessing.get_context("forkserver")
FORK = multiprocessing.get_context("fork")
"""how a leader starts its peers"""


class Failed(Exception):
    """A case that could not be played to its end; the text says why."""


# The runner's end of a failure: peers tell it past their leader, who may be waiting for them.
_report: Connection | None = None


def _lead(report: Connection, errors: str, body: Callable[..., Any], args: tuple[Any, ...]) -> None:
    global _report
    os.setpgid(0, 0)
    ignore_sigint()
    with open(errors, "ab", buffering=0) as file:
        os.dup2(file.fileno(), 2)
    _report = report
    answer = _told(report, body, args)
    report.send((True, answer))


def _told(report: Connection, body: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """What `body` returns; what it raises is told to the runner, who ends the case."""
    signal.alarm(LIFETIME)
    try:
        return body(*args)
    except Exception as error:  # noqa: BLE001 - whatever it is, the runner reports it
        report.send((False, f"{type(error).__name__}: {error}"))
        signal.pause()


def lead(errors: str, seconds: float, body: Callable[..., Any], *args: Any) -> Any:
    """What `body(*args)` returned in a leader's process. Raises Failed, for instance after so many seconds."""
    mine, theirs = SERVER.Pipe(duplex=False)
    leader = SERVER.Process(target=_lead, args=(theirs, errors, body, args))
    with mine, theirs:
        try:
            _serve()
            with sigint_blocked():  # a process of which nobody knows could not be ended
                leader.start()
            theirs.close()
            if not wait([mine, leader.sentinel], seconds):
                raise Failed(f"not done after {seconds:.0f} s")
            if not mine.poll():
                raise EOFError  # only peers are left, who will never say it
            good, answer = mine.recv()
        except EOFError:
            leader.join(5)
            raise Failed(f"it ended with exit code {leader.exitcode}") from None
        finally:
            theirs.close()
            _end(leader, mine)
    if not good:
        raise Failed(answer)
    return answer


def _serve() -> None:
    """Have the server of leaders running, and multiprocessing's tracker, which would unblock SIGINT when it starts.

    The server imports from the folder that it is started in before anything else. In a checkout those would be sources
    without the extension, so it starts in the root, and takes each leader to where the runner is.
    """
    forkserver.set_forkserver_preload(PRELOADED)
    resource_tracker.ensure_running()
    here = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.chdir("/")
        with sigint_blocked():  # it is deaf to Ctrl-C, but only once it has imported everything
            forkserver.ensure_running()
    finally:
        os.fchdir(here)
        os.close(here)


def _end(leader: Any, report: Connection) -> None:
    """End the leader's whole group, and the leader, if it was not yet the group's.

    The kernel takes its time with those that were in a call, or had much memory: all of them hold the other end of
    `report`, and its end of file says that the last is gone.
    """
    if leader.pid is None:
        return
    leader.join(0)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader.pid, signal.SIGKILL)
    if leader.exitcode is None:
        leader.kill()
    leader.join()
    leader.close()
    with contextlib.suppress(EOFError, OSError):  # the latter in the middle of a message
        while True:
            report.recv_bytes()


class Control:
    """A peer's side of its conversation with the leader."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def orders(self) -> Generator[Any, None, None]:
        """Says that the peer is ready, then yields what the leader orders, until that is enough."""
        self._connection.send(None)
        while (order := self._connection.recv()) is not None:
            yield order

    async def orders_awaited(self) -> AsyncIterator[Any]:
        """The same, while the event loop goes on."""
        self._connection.send(None)
        while (order := await _receive(self._connection)) is not None:
            yield order

    def answer(self, value: Any) -> None:
        self._connection.send(value)


async def _receive(connection: Connection) -> Any:
    loop = asyncio.get_running_loop()
    readable: asyncio.Future[None] = loop.create_future()

    def done() -> None:
        if not readable.done():
            readable.set_result(None)

    loop.add_reader(connection.fileno(), done)
    try:
        await readable
    finally:
        loop.remove_reader(connection.fileno())
        os.set_blocking(connection.fileno(), True)  # which libuv changes
    return connection.recv()


class Peer:
    """`with Peer(role, *args) as peer:` runs `role(*args, control)` in another process until the `with` ends."""

    def __init__(self, role: Callable[..., None], *args: Any) -> None:
        self._mine, self._theirs = FORK.Pipe()
        assert _report is not None, "only a leader has peers"
        whole = (*args, Control(self._theirs))
        self._process = FORK.Process(target=_told, args=(_report, role, whole), daemon=True)

    def __enter__(self) -> Peer:
        self._process.start()
        self._theirs.close()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            with contextlib.suppress(BrokenPipeError):  # it has ended already
                self._mine.send(None)
            self._process.join(5)
        if self._process.exitcode is None:
            self._process.kill()
            self._process.join()
        self._mine.close()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def ready(self) -> None:
        """Returns when the peer has opened its ends."""
        self._mine.recv()

    async def ready_awaited(self) -> None:
        await _receive(self._mine)

    def order(self, order: Any) -> None:
        self._mine.send(order)

    def answer(self) -> Any:
        return self._mine.recv()

    async def answer_awaited(self) -> Any:
        return await _receive(self._mine)


Ends = Sequence[End]


def perform(
    subject: Subject,
    tickets: Sequence[Any],
    plan: Plan,
    blocking: Callable[..., Any] | None,
    awaited: Callable[..., Awaitable[Any]] | None,
    *args: Any,
) -> Any:
    """Opens the tickets and plays the part that suits the subject: `part(ends, *args)`."""
    if subject.kind == "sync":
        assert blocking is not None, f"{subject.name} blocks"
        with contextlib.ExitStack() as stack:
            return blocking([stack.enter_context(subject.open(ticket, plan)) for ticket in tickets], *args)

    async def play() -> Any:
        assert awaited is not None, f"{subject.name} is awaited"
        async with contextlib.AsyncExitStack() as stack:
            ends = [await stack.enter_async_context(subject.open(ticket, plan)) for ticket in tickets]
            return await awaited(ends, *args)

    return run(play(), subject.kind)
