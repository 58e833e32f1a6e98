"""The call number N fails for want of a descriptor: every step of creating, attaching and waiting is tried."""

from __future__ import annotations

import pytest
from ends import RING, ends
from programs import Program

import aiospin

pytestmark = pytest.mark.usefixtures("leaves_nothing")

STARVE = """
    import errno, gc, resource

    def opened():
        return {fd for fd in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{fd}")}

    def starve(action):
        "Call `action` with room for 0, 1, 2, ... more descriptors until it succeeds; how often it failed."
        before, (soft, hard) = opened(), resource.getrlimit(resource.RLIMIT_NOFILE)
        for room in range(200):
            probe = os.dup(0)
            os.close(probe)
            resource.setrlimit(resource.RLIMIT_NOFILE, (probe + room, hard))
            try:
                result = action()
            except (OSError, aiospin.AttachError) as error:
                cause = error if isinstance(error, OSError) else error.__cause__
                assert isinstance(cause, OSError) and cause.errno == errno.EMFILE, repr(error)
            else:
                return room, result
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            error = cause = None
            gc.collect()
            assert opened() == before, (room, opened() - before)
        raise AssertionError("it never succeeded")
"""


def test_creating_without_descriptors() -> None:
    program = (
        STARVE
        + """
    failures, queue = starve(lambda: aiospin.Queue(readers=3, capacity=RING))
    assert failures >= 4, failures
    with queue, queue.writer() as writer, queue.reader(2) as reader:
        writer.put(b"works")
        say(reader.get().decode())
"""
    )
    with Program(program) as child:
        assert child.hear() == "works"
        child.finish()


def test_named_segments_without_descriptors() -> None:
    program = (
        STARVE
        + """
    import tempfile
    with tempfile.TemporaryDirectory() as directory:
        failures, queue = starve(lambda: aiospin.Queue(readers=2, capacity=RING, name="starved", directory=directory))
        assert failures >= 2, failures
        queue.close()
        say(os.listdir(directory))
"""
    )
    with Program(program) as child:
        assert child.hear() == []
        child.finish()


def test_attaching_without_descriptors() -> None:
    program = (
        STARVE
        + """
    failures, reader = starve(lambda: aiospin.attach(arguments))
    assert failures >= 2, failures
    with reader:
        say("attached")
        say(reader.get().decode())
"""
    )
    with ends() as (_, writer, (reader,)), Program(program, str(reader.handle)) as child:
        assert child.hear() == "attached"
        writer.put(b"works")
        assert child.hear() == "works"
        child.finish()


def test_a_wait_without_descriptors_still_waits() -> None:
    """A peer whose pidfd cannot be opened is known by its lock alone."""
    program = (
        STARVE
        + """
    reader = aiospin.attach(arguments)
    reader.__enter__()
    starve(lambda: reader.try_acquire_read())
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(opened()), resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    say("starved")
    try:
        say(reader.get().decode())
        say(reader.get().decode())
    except aiospin.PeerDied as error:
        say(error.pid)
    reader.close()
"""
    )
    with aiospin.Queue[bytes](capacity=RING) as queue:
        reader = queue.reader(0)
        writing = """
    with aiospin.attach(arguments) as writer:
        hear()
        writer.put(b"works")
        hear()
        os.kill(os.getpid(), 9)
"""
        writer = queue.writer()
        with Program(program, str(reader.handle)) as child, Program(writing, str(writer.handle)) as peer:
            assert child.hear() == "starved"
            peer.say()
            assert child.hear() == "works"
            peer.say()
            assert child.hear() == peer.pid
            child.finish()
        reader.close()
        writer.close()
