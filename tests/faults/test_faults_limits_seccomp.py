"""System calls that a seccomp filter refuses, one at a time: survived and said once, or a typed error. Never a hang."""

from __future__ import annotations

import errno
from typing import Any

import pytest
from programs import OTHER, Program

import aiospin

pytestmark = pytest.mark.usefixtures("leaves_nothing")

FILTERED = """
    sys.path.append(os.path.join(os.environ["TESTS"], "faults"))
    import asyncio, gc, logging, threading, uvloop
    from filters import refuse

    logged = []
    class Listener(logging.Handler):
        def emit(self, record):
            logged.append(record.getMessage())
    logging.getLogger("aiospin").addHandler(Listener())
"""

PEER = """
    with aiospin.attach(arguments) as writer:
        writer.put(b"x")
        hear()
"""


def hears_of_a_death(program: str, arguments: list[Any], peers_backend: str = aiospin.backend) -> Any:
    """Run a filtered reader beside a writer that is killed. What it logged, once it said what it should."""
    with aiospin.Queue[bytes](capacity=65536) as queue:
        reader, writer = queue.reader(0), queue.writer()
        try:
            with (
                Program(FILTERED + program, [str(reader.handle), *arguments]) as child,
                Program(PEER, str(writer.handle), backend=peers_backend) as peer,
            ):
                assert child.hear() == "x"
                peer.kill()
                pid, noticed, logged = child.hear()
                assert pid == peer.pid and noticed in child.hear()
                child.finish()
                return logged
        finally:
            reader.close()
            writer.close()


READ_TILL_DEATH = """
    handle, error, call, kind, expected = arguments
    refuse(error, *call)
    def read():
        with aiospin.attach(handle) as reader:
            message = reader.get()
            reader._peer_descriptors()  # meets the writer while it lives, or tries to
            say(message.decode())
            for _ in range(2):  # the second is there to be told at most once
                try:
                    reader.get(timeout=60)
                except aiospin.PeerDied as death:
                    return death
    async def aread():
        with aiospin.attach(handle) as reader:
            message = await reader.aget()
            reader._peer_descriptors()
            say(message.decode())
            try:
                await reader.aget()
            except aiospin.PeerDied as death:
                return death
    if kind == "thread":
        death = read()
    else:
        loop = {"asyncio": asyncio.SelectorEventLoop, "uvloop": uvloop.new_event_loop}[kind]()
        death = loop.run_until_complete(aread())
        loop.close()
    say([death.pid, death.noticed, logged])
    say(expected)
"""


@pytest.mark.parametrize(
    ("kind", "error"), [("thread", errno.ENOSYS), ("asyncio", errno.EPERM), ("uvloop", errno.ENOSYS)]
)
def test_without_pidfds_deaths_are_told_by_the_lock(kind: str, error: int) -> None:
    logged = hears_of_a_death(READ_TILL_DEATH, [error, ["pidfd_open"], kind, ["lock"]])
    [line] = logged
    assert "the kernel refuses pidfd_open" in line and "within a second" in line


def test_without_membarrier_sleeps_are_short() -> None:
    """Beside a peer whose stores are plain. Either tells of the death: a lock goes just before the pidfd fires."""
    logged = hears_of_a_death(READ_TILL_DEATH, [errno.EPERM, ["membarrier"], "thread", ["pidfd", "lock"]], "fallback")
    [line] = logged
    assert "the kernel refuses membarrier" in line and "10 ms" in line


@pytest.mark.native
def test_without_membarrier_native_peers_miss_nothing() -> None:
    logged = hears_of_a_death(READ_TILL_DEATH, [errno.ENOSYS, ["membarrier"], "thread", ["pidfd", "lock"]])
    assert logged == []


@pytest.mark.parametrize("backends", [(aiospin.backend, "fallback"), ("fallback", OTHER)], ids=str)
def test_messages_pass_without_membarrier_and_pidfds(backends: tuple[str, str]) -> None:
    """Both sides refused, both falling asleep again and again: every message arrives."""
    reading = """
    refuse(1, "membarrier", "pidfd_open")
    with aiospin.attach(arguments[0]) as reader, aiospin.attach(arguments[1]) as writer:
        for message in reader:
            writer.put(message)
    """
    quiet = {"PYTHONWARNINGS": "error"}
    with aiospin.Queue[bytes](capacity=65536) as there, aiospin.Queue[bytes](capacity=65536) as back:
        ends = [there.reader(0), back.writer(), there.writer(), back.reader(0)]
        handles = [str(end.handle) for end in ends]
        for end in ends:
            end.close()
        writing = """
    refuse(38, "membarrier", "pidfd_open")
    with aiospin.attach(arguments[2]) as writer, aiospin.attach(arguments[3]) as reader:
        for sequence in range(100):
            writer.put(content(sequence, 500))
            assert reader.get() == content(sequence, 500)
        """
        with (
            Program(FILTERED + reading, handles, backend=backends[0], environment=quiet) as echo,
            Program(FILTERED + writing, handles, backend=backends[1], environment=quiet) as sender,
        ):
            sender.finish()
            echo.finish()


CALLS = ["memfd_create", "eventfd2", "epoll_create1", "fallocate", "pipe2", "mmap", "ppoll"]

# What cannot be made without it: a queue, a wait set.
NEEDED_BY = {
    "memfd_create": ["queue"],
    "fallocate": ["queue"],
    "pipe2": ["queue"],
    "mmap": ["queue"],
    "eventfd2": ["set"],
    "epoll_create1": ["set"],
    "ppoll": [],
}


@pytest.mark.parametrize("error", [errno.ENOSYS, errno.EPERM], ids=lambda error: errno.errorcode[error])
def test_a_call_that_nothing_replaces_is_a_typed_error(error: int) -> None:
    """Refused while the process runs: what needs it says so and leaves nothing, and everything else goes on.

    Each call is refused in a forked child of its own.
    """
    program = """
    error, calls = arguments
    policy = aiospin.WaitPolicy(core_share=1.0, inline_us=0.0, parks=False)
    PARKED = aiospin.WaitPolicy(maximum_us=0.5, inline_us=0.0)

    async def exchange(reader, writer):
        waiting = asyncio.ensure_future(reader.aget())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        writer.put(b"x")
        return await waiting

    def scene(call):
        watched, parked = aiospin.Queue(capacity=RING, policy=policy), aiospin.Queue(capacity=RING, policy=PARKED)
        ends = [[queue.writer(), queue.reader(0)] for queue in (watched, parked)]
        for end in sum(ends, []):
            end.__enter__()
        loop = asyncio.SelectorEventLoop()
        if call == "mmap":  # Python needs it too, so there must be memory at hand
            spare = [bytes(1000) for _ in range(10000)]
            del spare
        before = sorted(os.listdir("/proc/self/fd"))
        refuse(error, call)
        refused = []
        makers = {"queue": lambda: aiospin.Queue(capacity=RING), "set": lambda: aiospin.WaitSet([ends[0][1]])}
        for what, make in makers.items():
            try:
                with make() as made:
                    if what == "queue":
                        made.reader(0).close()
                        with made.writer(), made.reader(0) as reader:
                            reader.try_acquire_read()
            except OSError as refusal:
                assert refusal.errno == error, repr(refusal)
                refused.append(what)
        gc.collect()
        assert sorted(os.listdir("/proc/self/fd")) == before, call
        for writer, reader in ends:  # not watched if there is no eventfd, but answered
            assert loop.run_until_complete(exchange(reader, writer)) == b"x"
            writer.put(b"y")
            assert reader.get() == b"y"
        try:
            ends[1][1].get(timeout=0.02)
        except (TimeoutError, OSError) as ended:  # without ppoll a thread cannot sleep, and may say so
            assert isinstance(ended, TimeoutError) or ended.errno == error, repr(ended)
        ends[1][0].put(b"z")
        assert ends[1][1].get() == b"z"
        for thing in (*sum(ends, []), watched, parked, loop):
            thing.close()
        return refused

    for call in calls:
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                say([call, scene(call)])
                status = 0
            finally:
                if status:
                    sys.excepthook(*sys.exc_info())
                os._exit(status)
        if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) != 0:
            say([call, "failed"])
    """
    with Program(FILTERED + program, [error, CALLS]) as child:
        assert dict(child.hear() for _ in CALLS) == NEEDED_BY, child.complaints()
        child.finish()
