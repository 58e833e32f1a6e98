"""The kernel refuses: memory, pidfds, barriers. Each refusal is either survived or said so."""

from __future__ import annotations

import errno
import os
from typing import Any

import pytest
from ends import RING, content, ends
from forked import open_descriptors
from programs import Program

import aiospin

pytestmark = pytest.mark.usefixtures("leaves_nothing")


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.ENOMEM, errno.EINTR, errno.EFBIG])
def test_memory_that_cannot_be_reserved(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    before = open_descriptors()

    def refuse(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    with pytest.raises((OSError, aiospin.SegmentTooLarge)) as caught:
        aiospin.Queue(capacity="1 MiB")
    assert os.strerror(code) in str(caught.value) or isinstance(caught.value, aiospin.SegmentTooLarge)
    assert open_descriptors() == before


@pytest.mark.parametrize("call", ["memfd_create", "ftruncate", "mkfifo", "pipe2", "open"])
def test_a_call_that_fails_leaves_nothing(call: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """Each failure of the N-th use of a call, with anonymous and with named backing."""
    real = getattr(os, call)
    for options in ({}, {"name": "faulty", "directory": tmp_path}):
        for number in range(1, 20):
            before, left = open_descriptors(), [number]

            def failing(*arguments: Any, left: list[int] = left, **keywords: Any) -> Any:
                left[0] -= 1
                if left[0] == 0:
                    raise OSError(errno.EIO, "the disk is on fire")
                return real(*arguments, **keywords)

            with monkeypatch.context() as patch:
                patch.setattr(os, call, failing)
                try:
                    queue = aiospin.Queue[bytes](readers=2, capacity=RING, **options)  # type: ignore[arg-type]
                except OSError as error:
                    assert "the disk is on fire" in str(error)
                    queue = None
                except aiospin.AttachError as error:
                    assert "the disk is on fire" in f"{error}{error.__cause__}"
                    queue = None
            if queue is not None:
                queue.close()
                assert left[0] > 0
                break
            assert open_descriptors() == before
            assert os.listdir(tmp_path) == []


def test_without_pidfds_the_lock_tells() -> None:
    program = """
        def refused(*_):
            say("asked")
            raise OSError(1, "Operation not permitted")
        os.pidfd_open = refused
        with aiospin.attach(arguments) as reader:
            say(reader.get().decode())
            try:
                reader.get()
            except aiospin.PeerDied as error:
                say(error.pid)
    """
    writing = """
        writer = aiospin.attach(arguments)
        writer.put(b"x")
        hear()
    """
    with aiospin.Queue[bytes](capacity=RING) as queue:
        reader, writer = queue.reader(0), queue.writer()
        with Program(program, str(reader.handle)) as child, Program(writing, str(writer.handle)) as peer:
            # It looks for its peer when it first has to wait: before the message, or after it.
            assert sorted([child.hear(), child.hear()]) == ["asked", "x"]
            peer.kill()
            assert child.hear() == peer.pid
            assert child.wait() == 0
            [line] = child.complaints().splitlines()
            assert line.startswith("the kernel refuses pidfd_open (Operation not permitted): deaths are noticed within")
        reader.close()
        writer.close()


def test_memory_for_a_message_that_runs_out_loses_it_alone() -> None:
    """A reader without memory for the copy says MemoryError, and the message is there for another try."""
    program = """
        import resource
        with aiospin.Queue(capacity="96 MiB") as queue, queue.writer() as writer, queue.reader(0) as reader:
            writer.put(bytes(64 << 20))
            writer.put(b"small")
            with open("/proc/self/statm") as statm:
                used = int(statm.read().split()[0]) * resource.getpagesize()
            soft, hard = resource.getrlimit(resource.RLIMIT_AS)
            resource.setrlimit(resource.RLIMIT_AS, (used + (16 << 20), hard))
            try:
                reader.get()
            except MemoryError:
                say("no memory")
            with reader.acquire_read() as slot:  # in place it needs none
                say(slot.size)
            say(reader.get().decode())
            resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    """
    with Program(program) as child:
        assert [child.hear() for _ in range(3)] == ["no memory", 64 << 20, "small"]
        child.finish()


def test_a_codec_that_fails_costs_no_other_message() -> None:
    with ends(codec="pickle") as (_, writer, (reader,)):
        with pytest.raises(ZeroDivisionError):
            writer.put(Unpicklable())
        with writer.acquire_write(10) as slot:
            slot.data[:] = content(0, 10)
        writer.put("after")
        with pytest.raises(Exception):  # noqa: B017 - pickle calls it as it likes
            reader.get()
        assert reader.get() == "after"


class Unpicklable:
    """Fails while it is being sent."""

    def __reduce__(self) -> Any:
        return 1 / 0
