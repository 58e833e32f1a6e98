"""Ends in other processes: every start method, every way a handle can travel, and what a fork leaves behind."""

from __future__ import annotations

import json
import multiprocessing
import multiprocessing.forkserver
import os
import pickle
import sys
from collections.abc import Iterator
from multiprocessing import resource_tracker
from typing import Any

import pytest
from ends import RING, content, ends, size_of
from forked import Child, in_child, open_descriptors
from programs import Program

import aiospin

pytestmark = pytest.mark.usefixtures("leaves_nothing")

COUNT = 200


def copy(reader: Any, writer: Any) -> None:
    """The body of a child: sends everything back, and checks it on the way."""
    with reader, writer:
        for sequence, message in enumerate(reader):
            assert message == content(sequence, size_of(sequence, 3000))
            writer.put(message)


@pytest.fixture(scope="module", autouse=True)
def helpers_of_multiprocessing() -> Iterator[None]:
    """The servers that multiprocessing starts once stay for this file, and are no leak of a test."""
    resource_tracker.ensure_running()
    multiprocessing.forkserver.ensure_running()
    yield
    multiprocessing.forkserver._forkserver._stop()  # type: ignore[attr-defined]


@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_ends_are_arguments_of_processes(method: str) -> None:
    context = multiprocessing.get_context(method)
    there: aiospin.Queue[bytes]
    back: aiospin.Queue[bytes]
    with aiospin.Queue(capacity=RING) as there, aiospin.Queue(capacity=RING) as back:
        sending, receiving = there.reader(0), back.writer()
        child = context.Process(target=copy, args=(sending, receiving))
        child.start()
        sending.close()
        receiving.close()
        with there.writer() as writer, back.reader(0) as reader:
            for sequence in range(COUNT):
                writer.put(content(sequence, size_of(sequence, 3000)))
                assert reader.get() == content(sequence, size_of(sequence, 3000))
            writer.close()
            assert list(reader) == []
        child.join()
        assert child.exitcode == 0
        child.close()


def test_many_ends_of_one_queue_in_one_process() -> None:
    """Each descriptor travels once, however many ends are passed."""
    context = multiprocessing.get_context("spawn")
    queue: aiospin.Queue[bytes]
    with aiospin.Queue(readers=3, capacity=RING) as queue:
        unclaimed = [queue.reader(rank) for rank in range(3)]
        child = context.Process(target=read_all, args=(unclaimed,))
        child.start()
        for end in unclaimed:
            end.close()
        with queue.writer() as writer:
            writer.put(b"for all")
        child.join()
        assert child.exitcode == 0
        child.close()


def read_all(readers: list[Any]) -> None:
    for reader in readers:
        with reader:
            assert list(reader) == [b"for all"]


TALKER = """
    import aiospin
    end = aiospin.attach(handle)
    with end:
        say([end.rank, end.role_name])
        say(end.get().decode())
"""

CARRIERS = {
    "json": ("handle = arguments['handle']", lambda handle: ({"handle": str(handle)}, {})),
    "environment": ("handle = os.environ['HANDLE']", lambda handle: ({}, {"HANDLE": str(handle)})),
    "argv_of_a_shell": (
        "import shlex; handle = shlex.split(arguments)[1]",
        lambda handle: (f"program {handle}", {}),
    ),
}


@pytest.mark.parametrize("carrier", CARRIERS)
def test_a_handle_is_text(carrier: str) -> None:
    unpack, pack = CARRIERS[carrier]
    with ends(readers=2) as (_, writer, readers):
        arguments, environment = pack(readers[1].handle)
        with Program(unpack + TALKER.replace("\n    ", "\n"), arguments, environment=environment) as child:
            assert child.hear() == [1, "reader 1"]
            writer.put(b"hello")
            assert child.hear() == "hello"
            child.finish()


def test_a_handle_names_the_writer_too() -> None:
    queue: aiospin.Queue[bytes]
    with aiospin.Queue(capacity=RING) as queue, queue.reader(0) as reader:
        unclaimed = queue.writer()
        text = str(unclaimed.handle)
        unclaimed.close()
        program = """
            with aiospin.attach(arguments) as writer:
                assert writer.rank is None
                for sequence in range(200):
                    writer.put(content(sequence, size_of(sequence, 3000)))
        """
        with Program(program, text) as child:
            got = list(reader)
            child.finish()
        assert got == [content(sequence, size_of(sequence, 3000)) for sequence in range(200)]


def test_a_handle_object_travels_by_pickle_and_json() -> None:
    with ends() as (_, writer, (reader,)):
        handle = pickle.loads(pickle.dumps(reader.handle))
        assert handle == reader.handle and str(handle) == str(reader.handle)
        assert aiospin.Handle.parse(json.loads(json.dumps(str(handle)))) == handle
        end = aiospin.attach(handle)
        writer.put(b"x")
        assert end.get() == b"x"  # type: ignore[union-attr]
        end.close()


def test_attaching_in_the_process_that_owns_the_queue() -> None:
    with ends(readers=2) as (queue, writer, readers):
        before = open_descriptors()
        twins = [aiospin.attach(str(readers[0].handle)), aiospin.attach(str(writer.handle))]
        assert open_descriptors() == before, "one descriptor per inode and process"
        twins[1].put(b"through the twin")  # type: ignore[union-attr]
        assert twins[0].get() == b"through the twin"  # type: ignore[union-attr]
        for end in (readers[0].get_nowait, lambda: writer.put(b"")):
            with pytest.raises(aiospin.RoleTaken) as caught:
                end()
            assert caught.value.pid == os.getpid()
        for twin in twins:
            twin.close()
        assert queue.statistics().published == 128


def test_what_may_pickle() -> None:
    with ends(readers=2) as (_, writer, (used, unused)):
        for end in (writer, used, unused):
            twin = pickle.loads(pickle.dumps(end))
            assert twin.handle == end.handle and repr(twin) == repr(end)
            twin.close()
        writer.put(b"x")
        used.get()
        for end in (writer, used):
            with pytest.raises(TypeError, match=r"in use by this process"):
                pickle.dumps(end)
        unused.close()
        with pytest.raises(TypeError, match="closed"):
            pickle.dumps(unused)


def test_the_queue_itself_and_slots_do_not_pickle() -> None:
    with ends() as (queue, writer, (reader,)):
        writer.put(b"x")
        with reader.acquire_read() as slot, writer.acquire_write(1) as claim:
            for what in (queue, slot, claim):
                with pytest.raises((TypeError, pickle.PicklingError)):
                    pickle.dumps(what)
            claim.data[:] = b"y"


def test_options_travel_with_the_end() -> None:
    with ends(codec="pickle", policy="eco", on_peer_death="wait", stall_after=3.5) as (_, writer, (reader,)):
        twin = pickle.loads(pickle.dumps(reader))
        assert twin._options == reader._options
        writer.put({"any": "object"})
        assert twin.get() == {"any": "object"}
        twin.close()


def test_an_end_claimed_before_a_fork_belongs_to_the_parent() -> None:
    with ends(readers=2) as (_, writer, (claimed, unclaimed)):
        writer.put(b"before")
        assert claimed.get() == b"before"

        def in_the_child() -> tuple[list[str], Any]:
            refused = []
            for call in (
                lambda: writer.put(b"x"),
                lambda: writer.put_nowait(b"x"),
                lambda: writer.put_many([b"x"]),
                lambda: writer.try_acquire_write(1),
                claimed.get,
                claimed.get_nowait,
                claimed.try_acquire_read,
                lambda: claimed.get_many(1),
            ):
                try:
                    call()
                except aiospin.ForkedUse as error:
                    refused.append(str(error))
            got = unclaimed.get()
            for end in (writer, claimed, unclaimed):
                end.close()
            return refused, got

        refused, got = in_child(in_the_child)
        assert len(refused) == 8 and got == b"before"
        assert all("parent" in text for text in refused)
        assert "writer" in refused[0] and "reader 0" in refused[4]
        writer.put(b"after")  # nothing of the parent's was touched
        assert claimed.get() == b"after"


def test_leases_and_claims_in_a_fork_do_nothing_to_the_parent() -> None:
    with ends() as (queue, writer, (reader,)):
        writer.put_many([b"leased", b"next"])
        slot = reader.try_acquire_read()
        claim = writer.try_acquire_write(5)
        assert slot is not None and claim is not None
        claim.data[:] = b"claim"

        def in_the_child() -> list[str]:
            outcomes = []
            for call in (slot.release, claim.publish):
                try:
                    call()
                except aiospin.AiospinError as error:
                    outcomes.append(type(error).__name__)
                else:
                    outcomes.append("quiet")
            return outcomes

        before = queue.statistics().depth
        outcomes = in_child(in_the_child)
        assert outcomes[1] == "ForkedUse"
        assert queue.statistics().depth == before
        assert bytes(slot.data) == b"leased"
        slot.release()
        claim.publish()
        assert reader.get_many(10) == [b"next", b"claim"]


def test_a_forked_child_uses_ends_that_nobody_has_claimed() -> None:
    with ends(readers=1) as (_, writer, (reader,)), ends() as (_, echo, (answers,)):

        def body(channel: Any) -> int:
            with reader, echo:
                for message in reader:
                    echo.put(message[::-1])
            return os.getpid()

        with Child(body) as child:
            for sequence in range(COUNT):
                writer.put(content(sequence, 100))
                assert answers.get() == content(sequence, 100)[::-1]
            with pytest.raises(aiospin.RoleTaken) as caught:
                reader.get_nowait()
            assert caught.value.pid == child.pid and str(child.pid) in str(caught.value)
            writer.close()
            assert child.result() == child.pid


def test_a_started_program_inherits_no_descriptor(leaves_nothing: Any) -> None:
    """Closed on exec, so that a child that outlives everybody keeps no segment alive."""
    with ends() as (_, writer, (reader,)):
        writer.put(b"x")
        assert reader.get() == b"x"
        opened = [fd for fd, target in open_descriptors().items() if (fd, target) not in leaves_nothing.descriptors]
        assert len(opened) >= 4 and not any(map(os.get_inheritable, opened))


def test_a_queue_across_three_processes_in_a_ring() -> None:
    """Each process forwards what it gets: two queues in both directions and one more."""
    program = """
        with aiospin.attach(arguments[0]) as reader, aiospin.attach(arguments[1]) as writer:
            for message in reader:
                writer.put(message)
    """
    queues: list[aiospin.Queue[bytes]] = [aiospin.Queue(capacity=RING) for _ in range(3)]
    handles = []
    for queue in queues:
        for end in (queue.reader(0), queue.writer()):
            handles.append(str(end.handle))
            end.close()
    with Program(program, [handles[0], handles[3]]) as first, Program(program, [handles[2], handles[5]]) as second:
        with queues[0].writer() as writer, queues[2].reader(0) as reader:
            for sequence in range(COUNT):
                message = content(sequence, size_of(sequence, 2 * RING if sequence % 50 == 0 else 2000))
                writer.put(message)
                assert reader.get() == message
            writer.close()
            assert list(reader) == []
        first.finish()
        second.finish()
    for queue in queues:
        queue.close()


def test_sys_argv_has_room_for_a_handle() -> None:
    with ends(readers=64) as (_, _writer, readers):
        text = str(readers[63].handle)
        assert len(text) < 4096 and text.isascii() and not set(text) & set(" \t\n'\"\\$`&|;<>()*?[]#~=%!{}")
        assert sys.getfilesystemencoding() and aiospin.Handle.parse(text).role == 64
