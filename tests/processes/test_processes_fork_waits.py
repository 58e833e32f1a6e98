"""A fork under pending waits: the parent's loop goes on hearing its bells, whatever the child does with its copies.

Each program keeps a wait of every kind pending (parked, watched by the waiter thread, for room, on a wait set), in a
loop or in threads, and forks: from its main thread, from another thread, and from within a coroutine of that loop.
"""

from __future__ import annotations

import pytest
from programs import Program

pytestmark = pytest.mark.usefixtures("leaves_nothing")

PATH = """
    sys.path.append(os.path.join(os.environ["TESTS"], "processes"))
"""

FORKS = (
    PATH
    + """
    import gc, select, signal, threading
    import pending
    from pending import Pending

    pending.expect_forks()
    kind, origin = arguments

    def child(body, leave):
        "A forked process that runs `body` and leaves; its pid."
        pid = os.fork()
        if pid:
            return pid
        status = 1
        try:
            body()
            gc.collect()
            status = 0
        finally:
            leave(status)

    def in_a_thread(function):
        found = []
        thread = threading.Thread(target=lambda: found.append(function()))
        thread.start()
        thread.join()
        return found[0]

    def reap(pid):
        "Its exit status. A child that hangs is killed, and the parent's own hang tells of a parent that does."
        pidfd = os.pidfd_open(pid)
        if not select.select([pidfd], [], [], 60)[0]:
            os.kill(pid, signal.SIGKILL)
        os.close(pidfd)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    waits = Pending(kind)
    from_there = {"main": lambda function: function(), "thread": in_a_thread, "coroutine": waits.call_in_loop}[origin]

    def run(body, leave=os._exit):
        waits.settle()
        pid = from_there(lambda: child(body, leave))
        waits.answer(2)  # while it lives, perhaps
        status = reap(pid)
        waits.answer(2)
        return status
"""
)


@pytest.mark.parametrize(
    ("kind", "origin"),
    [("asyncio", "main"), ("asyncio", "coroutine"), ("uvloop", "thread"), ("uvloop", "coroutine"), ("thread", "main")],
)
def test_the_parent_hears_its_bells_after_a_fork(kind: str, origin: str) -> None:
    program = """
    spare = aiospin.Queue(readers=1, capacity=RING, policy=pending.PARKED)
    reader, writer = spare.reader(0), spare.writer()
    say(["does nothing", run(lambda: None)])
    say(["touches what it inherits", run(lambda: pending.touch_what_is_inherited(waits))])
    say(["uses ends that nobody claimed", run(lambda: pending.use_unclaimed(reader, writer))])
    say(["runs loops of its own", run(pending.run_loops_of_its_own)])
    say(["is killed", run(lambda: os.kill(os.getpid(), signal.SIGKILL))])
    pending.use_unclaimed(reader, writer)  # the roles that children had are free
    waits.close()
    spare.close()
    """
    with Program(FORKS + program, [kind, origin]) as process:
        outcomes = dict(process.hear() for _ in range(5))
        process.finish()
    assert outcomes == {
        "does nothing": 0,
        "touches what it inherits": 0,
        "uses ends that nobody claimed": 0,
        "runs loops of its own": 0,
        "is killed": -9,
    }


@pytest.mark.parametrize("kind", ["asyncio", "uvloop", "thread"])
def test_a_child_that_ends_its_interpreter_leaves_the_parent_alone(kind: str) -> None:
    """Finalisation collects the inherited ends, sets, tasks and slots. Not from a coroutine: that would unwind a loop.

    Once with the ends as they are, once after the child has touched them.
    """
    program = """
    say(run(lambda: None, sys.exit))
    say(run(lambda: pending.touch_what_is_inherited(waits), sys.exit))
    waits.close()
    """
    with Program(FORKS + program, [kind, "main"], warnings=None) as process:
        assert [process.hear(), process.hear()] == [0, 0]
        process.finish()


def test_a_signal_handler_that_forks_under_a_wait() -> None:
    """The child returns from the handler into the wait, which is the parent's: it says so, and takes nothing.

    It used to sleep on the parent's bell, and to answer for the parent's wait set.
    """
    program = """
    import pending, signal, threading
    pending.expect_forks()
    def fork(*_):
        children.append(os.fork())
    children = []
    signal.signal(signal.SIGUSR1, fork)

    def under(wait, end, answer):
        def disturb():
            asleep(end, since)
            signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)
            until(lambda: children)
            say(os.waitstatus_to_exitcode(os.waitpid(children.pop(), 0)[1]))
            answer()
        since = epoch(end)
        disturbing = threading.Thread(target=disturb)
        disturbing.start()
        try:
            wait()
        except aiospin.ForkedUse:
            os._exit(7)
        finally:
            if children == [0]:
                os._exit(8)
        disturbing.join()

    queue = aiospin.Queue(capacity=RING, policy=pending.PARKED)
    with queue, queue.writer() as writer, queue.reader(0) as reader:
        under(reader.get, reader, lambda: writer.put(b"x"))
        fill(writer)
        under(lambda: writer.put(bytes(1000)), writer, lambda: reader.get_many(1000))
        reader.get()
        with aiospin.WaitSet([reader]) as waits:
            under(waits.wait_sync, reader, lambda: writer.put(b"y"))
        say(reader.get().decode())
    """
    with Program(PATH + program) as process:
        assert [process.hear() for _ in range(4)] == [7, 7, 7, "y"]
        process.finish()


def test_a_fork_while_another_thread_claims_the_end() -> None:
    """The lock that the claiming thread had is locked for ever in the child, where that thread does not exist."""
    program = """
    import pending, threading
    pending.expect_forks()
    queue = aiospin.Queue(capacity=RING)
    reader, writer = queue.reader(0), queue.writer()
    inside, go_on = threading.Event(), threading.Event()
    open_role = reader._open_role
    def slowly(*arguments):
        inside.set()
        go_on.wait()
        open_role(*arguments)
    reader._open_role = slowly
    claiming = threading.Thread(target=reader.__enter__)
    claiming.start()
    inside.wait()
    pid = os.fork()
    if pid == 0:
        try:
            reader.get()
        except aiospin.RoleTaken as error:
            os._exit(5 if error.pid == os.getppid() else 6)
    say(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    go_on.set()
    claiming.join()
    writer.put(b"x")
    say(reader.get().decode())
    pid = os.fork()
    if pid == 0:
        try:
            reader.__enter__()
        except aiospin.ForkedUse:
            os._exit(7)
    say(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    for end in (reader, writer, queue):
        end.close()
    """
    with Program(PATH + program) as process:
        assert [process.hear() for _ in range(3)] == [5, "x", 7]
        process.finish()


@pytest.mark.parametrize(("kind", "origin"), [("asyncio", "coroutine"), ("uvloop", "thread")])
def test_processes_start_while_waits_are_pending(kind: str, origin: str) -> None:
    """Every start method, from everywhere; what was started serves its own ends meanwhile."""
    program = """
    import multiprocessing, multiprocessing.forkserver
    for method in ("fork", "spawn", "forkserver"):
        there, back = aiospin.Queue(capacity=RING), aiospin.Queue(capacity=RING)
        with there, back:
            reader, writer = there.reader(0), back.writer()
            waits.settle()
            started = multiprocessing.get_context(method).Process(target=pending.echo, args=(reader, writer))
            from_there(started.start)
            reader.close(), writer.close()
            waits.answer(2)
            with there.writer() as sender, back.reader(0) as receiver:
                for sequence in range(5):
                    sender.put(content(sequence, 1000))
                    assert receiver.get() == content(sequence, 1000)
                    waits.answer()
                sender.close()
            started.join()
            assert started.exitcode == 0, (method, started.exitcode)
            started.close()
            waits.answer()
        say(method)
    multiprocessing.forkserver._forkserver._stop()
    waits.close()
    """
    with Program(FORKS + program, [kind, origin]) as process:
        assert [process.hear() for _ in range(3)] == ["fork", "spawn", "forkserver"]
        process.finish()
