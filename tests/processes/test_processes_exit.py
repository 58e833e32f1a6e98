"""The interpreter ends while waits are pending: in daemon threads, in loops that nobody closed, in the waiter thread.

Guarantee that is tested: exit status 0, nothing on standard error, and an end, on both backends and both loops. What a
state leaves behind for its peers is a death, or an ordinary end where Python still closes things.
"""

from __future__ import annotations

import pytest
from programs import Program

pytestmark = pytest.mark.usefixtures("leaves_nothing")

# Each state gets a forked child of its own, which goes on below as the program that a user would have written: in
# __main__, and to the interpreter's own end.
SET_UP = """
    import asyncio, atexit, signal, select, tempfile, threading, uvloop
    from aiospin import WaitPolicy, WaitSet
    kind, policy, states = arguments
    text = "sys.exit()"
    for name, state in states.items():
        with tempfile.TemporaryFile("w+") as complaints:
            sys.stdout.flush()
            pid = os.fork()
            if pid == 0:
                os.dup2(complaints.fileno(), 2)
                text = state
                break
            pidfd = os.pidfd_open(pid)
            if not select.select([pidfd], [], [], 60)[0]:
                os.kill(pid, signal.SIGKILL)
            os.close(pidfd)
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            complaints.seek(0)
            say([name, status, complaints.read()])
    if text == "sys.exit()":
        sys.exit()
    new_loop = {"asyncio": asyncio.SelectorEventLoop, "uvloop": uvloop.new_event_loop}.get(kind)
    POLICIES = {
        "parked": WaitPolicy(maximum_us=0.5, inline_us=0.0),
        "monitored": WaitPolicy(core_share=1.0, inline_us=0.0, parks=False),
    }
    queue = aiospin.Queue(readers=3, capacity=RING, policy=POLICIES[policy])
    writer, reader, other, third = queue.writer(), queue.reader(0), queue.reader(1), queue.reader(2)
    for end in (writer, reader, other, third):
        end.__enter__()

    def pending(loop, *waits):
        "Start these waits in the loop, let them fall asleep, and leave it all like that."
        tasks = [loop.create_task(wait) for wait in waits]
        for task in tasks:
            task._log_destroy_pending = False  # asyncio's complaint is its own
        async def settle():
            for _ in range(20):
                await asyncio.sleep(0)
        loop.run_until_complete(settle())
        assert not any(task.done() for task in tasks), tasks
        return tasks

    async def of(operation):
        return await operation

    def falls_asleep(end):
        until(lambda: policy == "monitored" or epoch(end))

    def daemon(work):
        def run():
            try:
                work()
            except aiospin.QueueClosed:  # what it is told if the interpreter lets it run once more
                pass
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread

    exec(text)
"""

# What is pending in a loop when the program's text ends.
IN_LOOPS = {
    "a loop that nobody closed": """
loop = new_loop(); tasks = pending(loop, of(reader.aget()), of(other.acquire_read()))
    """,
    "a loop that was closed under them": """
loop = new_loop(); tasks = pending(loop, of(reader.aget()), of(other.acquire_read())); loop.close()
    """,
    "a wait set and a single end": """
loop, waits = new_loop(), WaitSet([reader, other]); tasks = pending(loop, waits.wait(), of(third.aget_many(5)))
    """,
    "a writer without room": """
fill(writer); loop = new_loop()
tasks = pending(loop, of(writer.aput(bytes(1000))), of(writer.aput(bytes(1000))), of(writer.aput_many([b"x"])))
    """,
    "time-outs to come": """
loop = new_loop(); tasks = pending(loop, of(reader.aget(timeout=1000)), of(other.aget(timeout=1000)))
    """,
    "waits that are answered, and whose tasks have not run": """
loop = new_loop(); tasks = pending(loop, of(reader.aget()), of(other.aget())); writer.put(b"x")
    """,
    "two loops": """
loops = [new_loop(), new_loop()]
tasks = [pending(loop, of(end.aget())) for loop, end in zip(loops, (reader, other))]
    """,
    "a loop that runs in a daemon thread": """
loop, asleep_now = new_loop(), threading.Event()
def work():
    tasks = pending(loop, of(reader.aget()), of(other.aget())); asleep_now.set(); loop.run_forever()
daemon(work); asleep_now.wait()
    """,
    "a busy loop in a daemon thread": """
loop, counted = new_loop(), []
for end in (other, third): end.close()
async def ping():
    while True:
        waiting = loop.create_task(of(reader.aget()))
        await asyncio.sleep(0)
        await writer.aput(b"x"); counted.append(await waiting)
daemon(lambda: loop.run_until_complete(ping())); until(lambda: len(counted) > 100)
    """,
    "leases and views in globals": """
import numpy
async def take():
    return [await end.acquire_read() for end in (reader, other)]
writer.put(bytes(100)); loop = new_loop(); slots = loop.run_until_complete(take())
view, array = memoryview(slots[0].data)[3:], numpy.frombuffer(slots[1].data, numpy.uint8)
third.get(); tasks = pending(loop, of(reader.aget()), of(third.acquire_read()))
    """,
}

# What is pending in threads.
IN_THREADS = {
    "every blocking call": """
calls = [reader.get, lambda: other.get_many(3), lambda: third.acquire_read().__enter__()]
threads = [daemon(call) for call in calls]
for end in (reader, other, third): falls_asleep(end)
    """,
    "put": """
fill(writer); daemon(lambda: writer.put(bytes(1000))); falls_asleep(writer)
    """,
    "a wait set": """
waits = WaitSet([reader, other, third]); daemon(waits.wait_sync); asleep(reader); asleep(third)
    """,
    "wait_any": """
daemon(lambda: aiospin.wait_any(reader, other)); asleep(other)
    """,
    "a large message": """
daemon(lambda: writer.put(bytes(3 * RING))); until(lambda: queue.statistics().published > 0)
    """,
    "a wait that is answered at exit": """
daemon(reader.get); falls_asleep(reader); atexit.register(writer.put, b"x")
    """,
    "an end that is closed at exit": """
daemon(reader.get); falls_asleep(reader); atexit.register(reader.close)
    """,
}


@pytest.mark.parametrize(("kind", "policy"), [("asyncio", "monitored"), ("uvloop", "parked")])
def test_waits_of_loops_are_pending_at_exit(kind: str, policy: str) -> None:
    assert_quiet(kind, policy, IN_LOOPS)


@pytest.mark.parametrize("policy", ["parked", "monitored"])
def test_waits_of_threads_are_pending_at_exit(policy: str) -> None:
    assert_quiet("none", policy, IN_THREADS)


def assert_quiet(kind: str, policy: str, states: dict[str, str]) -> None:
    with Program(SET_UP, [kind, policy, states], warnings=None) as child:
        assert {name: (status, complaints) for name, status, complaints in (child.hear() for _ in states)} == {
            name: (0, "") for name in states
        }
        child.finish()
