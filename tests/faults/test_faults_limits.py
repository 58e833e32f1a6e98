"""Every limit that a process can run into: descriptors, address space, threads. Typed errors, and usable afterwards.

Each program lowers a limit of its own step by step, from nothing free up to enough, and tries an operation at each.
"""

from __future__ import annotations

import pytest
from ends import pair
from forked import open_descriptors
from programs import Program

import aiospin

pytestmark = pytest.mark.usefixtures("leaves_nothing")

STARVE = """
    import asyncio, contextlib, errno, gc, resource, threading, uvloop
    from aiospin import WaitPolicy, WaitSet
    new_loop = {"asyncio": asyncio.SelectorEventLoop, "uvloop": uvloop.new_event_loop}
    PARKED = WaitPolicy(maximum_us=0.5, inline_us=0.0)
    MONITORED = WaitPolicy(core_share=1.0, inline_us=0.0, parks=False)

    def opened():
        gc.collect()
        return {fd for fd in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{fd}")}

    @contextlib.contextmanager
    def lowered(limit, value):
        soft, hard = resource.getrlimit(limit)
        resource.setrlimit(limit, (value, hard))
        try:
            yield
        finally:
            resource.setrlimit(limit, (soft, hard))

    def with_room(room):
        "Room for that many more descriptors, if they are taken in order."
        probe = os.dup(0)
        os.close(probe)
        return lowered(resource.RLIMIT_NOFILE, probe + room)

    def exhausted(error):
        cause = error if isinstance(error, OSError) else error.__cause__
        return isinstance(cause, OSError) and cause.errno == errno.EMFILE

    def starve(action, undo=lambda result: None):
        "Call `action` with more and more room until it succeeds. How often it failed, and what was said last."
        before, said = opened(), ""
        for room in range(100):
            try:
                with with_room(room):
                    result = action()
            except (OSError, aiospin.AttachError) as error:
                assert exhausted(error), repr(error)
                said = str(error)
            else:
                undo(result)
                del result
                assert opened() == before, ("after success", room, opened() - before)
                return room, said
            assert opened() == before, (room, opened() - before)
        raise AssertionError(f"it never succeeded: {said}")
"""


def test_a_wait_set_that_cannot_be_made_leaves_nothing() -> None:
    """Its members are added by its constructor, and one of them may refuse. It used to keep a descriptor then."""
    before = open_descriptors()
    with pair() as (_, reader):
        reader.close()
        for make in (aiospin.WaitSet, lambda members: aiospin.wait_any(*members)):
            with pytest.raises(aiospin.QueueClosed):
                make([reader])
    assert open_descriptors() == before


def test_every_step_of_creating_and_attaching_says_how_many_it_takes() -> None:
    """In a process that is not the owner's: attaching, the ends' bells, and the claim by the first call."""
    program = """
    def use(handle):
        end = aiospin.attach(handle)
        try:
            end.__enter__()
        except BaseException:
            end.close()
            raise
        return end

    def use_both():
        writer = use(arguments[0])
        try:
            return writer, use(arguments[1])
        except BaseException:
            writer.close()
            raise

    def pass_on(ends):
        writer, reader = ends
        writer.put(b"works")
        assert reader.get() == b"works"
        reader.close(), writer.close()

    say(starve(lambda: aiospin.Queue(readers=3, capacity=RING), lambda queue: queue.close()))
    say(starve(use_both, pass_on))
    """
    with aiospin.Queue[bytes](readers=3, capacity=65536) as queue:
        ends = [queue.writer(), queue.reader(2)]
        with Program(STARVE + program, [str(end.handle) for end in ends]) as child:
            failures, said = child.hear()
            assert failures >= 6 and "a queue of 3 readers takes 6 descriptors" in said and "ulimit -n" in said
            failures, said = child.hear()
            assert failures >= 6 and "descriptors; this process may have" in said
            child.finish()
        for end in ends:
            end.close()


def test_waits_need_no_descriptor_or_say_so(loop_kind: str) -> None:
    """Reader, writer, wait set, in a loop that runs already: a wait that cannot be watched parks; a set says EMFILE."""
    program = """
    loop = new_loop[arguments]()

    async def reads(reader, writer):
        waiting = asyncio.ensure_future(reader.aget())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not waiting.done(), waiting
        writer.put(b"x")
        assert await waiting == b"x"

    async def writes(reader, writer):
        fill(writer)
        waiting = asyncio.ensure_future(writer.aput(bytes(1000)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        reader.get_many(1000)
        await waiting
        reader.get()

    async def waits(reader, writer):
        with WaitSet([reader]) as members:
            waiting = asyncio.ensure_future(members.wait())
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            writer.put(b"x")
            assert await waiting == [reader]
            reader.get()

    async def main(policy):
        failures = []
        for scene in (reads, writes, waits):
            for room in range(20):
                with aiospin.Queue(capacity=RING, policy=policy) as queue:
                    with queue.writer() as writer, queue.reader(0) as reader:
                        before = opened()
                        try:
                            with with_room(room):
                                await scene(reader, writer)
                        except OSError as error:
                            assert exhausted(error), repr(error)
                            assert opened() == before
                            await reads(reader, writer)
                        else:
                            await scene(reader, writer)
                            failures.append(room)
                            break
        return failures

    for policy in (PARKED, MONITORED):
        say(loop.run_until_complete(main(policy)))
    loop.close()
    """
    with Program(STARVE + program, loop_kind) as child:
        for failures in (child.hear(), child.hear()):
            assert failures[:2] == [0, 0] and failures[2] >= 2, failures
        child.finish()


@pytest.mark.native
def test_a_waiter_thread_that_cannot_start_is_done_without(loop_kind: str) -> None:
    """Beyond the user's limit on processes awaited calls park at once; when there is room, the thread comes."""
    program = """
    loop = new_loop[arguments]()
    queue = aiospin.Queue(capacity=RING, policy=MONITORED)
    writer, reader = queue.writer(), queue.reader(0)

    async def exchange(count):
        for number in range(count):
            waiting = asyncio.ensure_future(reader.aget())
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            await writer.aput(b"%d" % number)
            assert await waiting == b"%d" % number

    def threads():
        return len(os.listdir("/proc/self/task"))

    os.setresuid(45678, 45678, 0)  # limits on processes do not bind root
    before = threads()
    with lowered(resource.RLIMIT_NPROC, 1):
        try:
            threading.Thread(target=int).start()
        except RuntimeError:
            say("no thread to be had")
        loop.run_until_complete(exchange(5))
        say(threads() - before)
    loop.run_until_complete(exchange(5))
    say(threads() - before)
    os.setresuid(0, 0, 0)
    loop.close()
    for end in (reader, writer, queue):
        end.close()
    """
    with Program(STARVE + program, loop_kind) as child:
        assert [child.hear() for _ in range(3)] == ["no thread to be had", 0, 1]
        child.finish()


def test_address_space_that_runs_out() -> None:
    """Creating, attaching, mapping for the first use, copying: OSError or MemoryError, nothing left, nothing lost."""
    program = """
    def used():
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[0]) * resource.getpagesize()

    refusals = (MemoryError, OSError, aiospin.AttachError)

    def squeeze(action, step, undo=lambda result: None):
        "How often it failed with less and less need, until it succeeded."
        before, failures = opened(), 0
        for spare in range(0, 400 << 20, step):
            try:
                with lowered(resource.RLIMIT_AS, used() + spare):
                    result = action()
            except refusals as error:
                cause = error if isinstance(error, (MemoryError, OSError)) else error.__cause__
                assert isinstance(cause, MemoryError) or cause.errno == errno.ENOMEM, repr(error)
                failures += 1
            else:
                undo(result)
                del result
                assert opened() == before
                return failures
            assert opened() == before, opened() - before
        raise AssertionError("it never succeeded")

    big = 32 << 20
    say(squeeze(lambda: aiospin.Queue(capacity=big), 4 << 20, lambda queue: queue.close()))
    def claim(end):
        try:
            return end.__enter__()
        except BaseException:
            end.close()
            raise

    with aiospin.Queue(capacity=big) as queue:
        say(squeeze(lambda: claim(queue.writer()), 16 << 20, lambda end: end.close()))  # maps the ring twice
        say(squeeze(lambda: claim(queue.reader(0)), 16 << 20, lambda end: end.close()))  # and for reading only
    with aiospin.Queue(capacity=big) as queue, queue.writer() as writer, queue.reader(0) as reader:
        message = bytes(big // 2)
        writer.put(message)
        say(squeeze(lambda: reader.get() == message or 1 / 0, 8 << 20))
        message = bytes(3 * big)  # in fragments, which the reader puts together
        sending = threading.Thread(target=writer.put, args=(message,))
        sending.start()
        say(squeeze(lambda: reader.get() == message or 1 / 0, 64 << 20))
        sending.join()
        writer.put(b"after")
        say(reader.get().decode())
    """
    with Program(STARVE + program) as child:
        failures = [child.hear() for _ in range(5)]
        if aiospin.backend == "native":  # the fallback maps the ring when the queue is made
            assert failures[1] >= 1 and failures[2] >= 1, failures
        assert failures[0] >= 1 and failures[3] >= 1 and failures[4] >= 1, failures
        assert child.hear() == "after"
        child.finish()
