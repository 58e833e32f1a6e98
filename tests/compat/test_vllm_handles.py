"""Handles: plain values that travel by pickle to any process, and say what is wrong where they cannot be used."""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import pytest
from compat_rig import SMALL, end, only_writer, packed, reading, sides, unpacked, writing
from ends import RING, content
from forked import in_child

import aiospin
from aiospin import _layout
from aiospin.compat.vllm import Handle, MessageQueue, NoRelay

pytestmark = pytest.mark.usefixtures("leaves_nothing")

FIELDS = [
    "local_reader_ranks",
    "buffer_handle",
    "local_subscribe_addr",
    "local_notify_addr",
    "remote_subscribe_addr",
    "remote_addr_ipv6",
]


def echo(handle: Handle, rank: int, channel: Any) -> None:
    """What a process does that has a handle: read one object, and send it back."""
    queue = MessageQueue.create_from_handle(handle, rank)
    channel.send(queue.dequeue())
    queue.shutdown()


def echo_from_pipe(channel: Any) -> None:
    echo(channel.recv(), 9, channel)


def test_a_handle_is_plain_values_under_the_names_of_the_interface() -> None:
    with only_writer((5, 9), max_chunk_bytes=1234, max_chunks=7) as queue:
        handle = queue.export_handle()
        assert [field.name for field in dataclasses.fields(handle)][: len(FIELDS)] == FIELDS
        assert handle.local_reader_ranks == [5, 9]
        assert handle.buffer_handle is not None
        assert handle.buffer_handle[:3] == (2, 1234, 7) and isinstance(handle.buffer_handle[3], str)
        assert [getattr(handle, name) for name in FIELDS[2:]] == [None, None, None, False]
        for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
            assert pickle.loads(pickle.dumps(handle, protocol)) == handle
        assert Handle() == Handle(local_reader_ranks=[], buffer_handle=None)


@pytest.mark.parametrize("method", ["spawn", "fork"])
@pytest.mark.parametrize("way", ["argument", "pipe"])
def test_a_handle_travels_to_a_process(method: str, way: str) -> None:
    context = multiprocessing.get_context(method)
    with only_writer((5, 9)) as queue:
        ours: Connection[Any, Any]
        ours, theirs = context.Pipe()
        handle = queue.export_handle()
        child = (
            context.Process(target=echo, args=(handle, 9, theirs))  # type: ignore[attr-defined]
            if way == "argument"
            else context.Process(target=echo_from_pipe, args=(theirs,))  # type: ignore[attr-defined]
        )
        child.start()
        try:
            if way == "pipe":
                ours.send(handle)
            reader = MessageQueue.create_from_handle(handle, 5)
            queue.wait_until_ready()
            queue.enqueue({"for": "both"})
            assert ours.recv() == reader.dequeue() == {"for": "both"}
            child.join()
            assert child.exitcode == 0
            reader.shutdown()
        finally:
            child.kill()
            child.join()
            child.close()
            ours.close()
            theirs.close()


def test_a_forked_child_cannot_use_what_its_parent_has_opened() -> None:
    with sides((5,)) as (queue, [reader]):

        def use() -> list[str]:
            said = []
            for call in (lambda: queue.enqueue("from the child"), lambda: reader.dequeue(timeout=0)):
                try:
                    call()
                except (aiospin.AiospinError, RuntimeError) as error:
                    said.append(type(error).__name__)
            queue.shutdown()  # which ends nothing for the parent
            reader.shutdown()
            return said

        assert in_child(use) == ["ForkedUse", "ForkedUse"]
        queue.enqueue("from the parent")
        assert reader.dequeue() == "from the parent"


def test_the_place_is_taken_from_then_on() -> None:
    with only_writer((5, 9)) as queue:
        handle = queue.export_handle()
        reader = MessageQueue.create_from_handle(handle, 9)
        with pytest.raises(aiospin.RoleTaken) as caught:
            MessageQueue.create_from_handle(handle, 9)
        assert caught.value.pid == os.getpid()
        queue.enqueue("unharmed")
        assert reader.dequeue() == "unharmed"
        reader.shutdown()
        again = MessageQueue.create_from_handle(handle, 9)
        with pytest.raises(TimeoutError):
            again.dequeue(timeout=0)
        again.shutdown()
        with reading(queue, 9) as program:
            assert program.hear() == "ready"
            with pytest.raises(aiospin.RoleTaken) as caught:
                MessageQueue.create_from_handle(handle, 9)
            assert caught.value.pid == program.pid


def test_ranks_lead_to_their_places() -> None:
    with sides((5, 9, 2)) as (queue, readers):
        assert [end(reader).rank for reader in readers] == [0, 1, 2]
        assert [reader.local_reader_rank for reader in readers] == [0, 1, 2]
        queue.enqueue(content(0, 500))
        for reader in readers:
            assert reader.dequeue() == content(0, 500)


@pytest.mark.parametrize("handle", [None, "aiospin-1.text", (1, 2), 5, object()])
def test_what_is_no_handle_is_refused_by_name(handle: Any) -> None:
    with pytest.raises(TypeError, match=r"handle of aiospin\.compat\.vllm is needed, got "):
        MessageQueue.create_from_handle(handle, 0)


def test_another_librarys_handle_is_refused() -> None:
    """One with all the right fields."""
    theirs = dataclasses.make_dataclass("Handle", FIELDS)([0], (1, 2, 3, "name"), None, None, None, False)
    with pytest.raises(TypeError, match=r"handle of aiospin\.compat\.vllm is needed, got Handle"):
        MessageQueue.create_from_handle(theirs, 0)


@pytest.mark.parametrize("rank", [0, 1, 6, -1, "5", None])
def test_a_rank_that_is_not_local_needs_a_relay(rank: Any) -> None:
    with only_writer((5, 9)) as queue:
        with pytest.raises(NoRelay, match=rf"rank {rank!r} .*\(5, 9\)"):
            MessageQueue.create_from_handle(queue.export_handle(), rank)


def test_readers_elsewhere_need_a_relay() -> None:
    for arguments in ((3, 1), (1, 0), (3, 2, [7, 8])):
        with pytest.raises(NoRelay, match=f"{arguments[0] - arguments[1]} of {arguments[0]} readers"):
            MessageQueue(*arguments)
    assert issubclass(NoRelay, aiospin.AiospinError)


def test_a_queue_without_readers_has_no_place() -> None:
    queue = MessageQueue(0, 0, **SMALL)
    with pytest.raises(NoRelay, match=r"rank 0 .*\(none\)"):
        MessageQueue.create_from_handle(queue.export_handle(), 0)
    queue.shutdown()


def test_a_queue_that_is_gone_is_told() -> None:
    with only_writer((5,)) as queue:
        handle = queue.export_handle()
    with pytest.raises(aiospin.AttachError):
        MessageQueue.create_from_handle(handle, 5)
    with writing((5,)) as program:
        handle = unpacked(program.hear())
        program.say()
        program.finish()
    with pytest.raises(aiospin.AttachError, match=str(program.pid)):
        MessageQueue.create_from_handle(handle, 5)


def changed(handle: Handle, **changes: Any) -> Handle:
    return dataclasses.replace(handle, **changes)


def with_text(handle: Handle, change: Callable[[str], Any]) -> Handle:
    assert handle.buffer_handle is not None
    return changed(handle, buffer_handle=(*handle.buffer_handle[:3], change(handle.buffer_handle[3])))


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text[:-1],
        lambda text: text[:-1] + ("0" if text[-1] != "0" else "1"),
        lambda text: text.replace("aiospin-1", "aiospin-9"),
        lambda text: "",
        lambda text: "psm_1234",
        lambda text: text[:20] + "A" * 20 + text[40:],
    ],
)
def test_a_text_that_was_tampered_with_is_refused(change: Callable[[str], str]) -> None:
    with only_writer((5,)) as queue:
        with pytest.raises(aiospin.AttachError):
            MessageQueue.create_from_handle(with_text(queue.export_handle(), change), 5)
        queue.enqueue("unharmed")


@pytest.mark.parametrize(
    "buffer_handle",
    [
        None,
        (),
        (1, 2, 3),
        ("1", 2, 3, "text"),
        (1, 2, 3, None),
        (1, 2, 3, b"text"),
        5,
    ],
)
def test_a_buffer_handle_that_is_none_is_refused(buffer_handle: Any) -> None:
    with only_writer((5,)) as queue:
        handle = changed(queue.export_handle(), buffer_handle=buffer_handle)
        with pytest.raises(aiospin.AttachError, match=r"names no segment|handle"):
            MessageQueue.create_from_handle(handle, 5)


def test_ranks_that_the_segment_has_not_are_refused() -> None:
    """Two ranks where the segment has one place."""
    with only_writer((5,)) as queue:
        handle = changed(queue.export_handle(), local_reader_ranks=[5, 9])
        with pytest.raises(aiospin.AttachError):
            MessageQueue.create_from_handle(handle, 9)
        MessageQueue.create_from_handle(handle, 5).shutdown()


def test_the_handle_of_another_queue_leads_there() -> None:
    with sides((5,)) as (first, [reader]), sides((5,)) as (second, [other]):
        assert packed(first.handle) != packed(second.handle)
        second.enqueue("second")
        with pytest.raises(TimeoutError):
            reader.dequeue(timeout=0)
        assert other.dequeue() == "second"


def test_an_attachment_that_failed_leaves_the_place_free() -> None:
    with only_writer((5, 9)) as queue:
        handle = queue.export_handle()
        with pytest.raises(NoRelay):
            MessageQueue.create_from_handle(handle, 7)
        with pytest.raises(aiospin.AttachError):
            MessageQueue.create_from_handle(with_text(handle, lambda text: text[:-2]), 5)
        for rank in (5, 9):
            MessageQueue.create_from_handle(handle, rank).shutdown()


def test_the_chunk_is_the_handles() -> None:
    with sides((5,), max_chunk_bytes=4321) as (queue, [reader]):
        assert reader._chunk == queue._chunk == 4321


def test_handles_are_good_after_their_processes_have_other_names() -> None:
    """A reader started by something else than multiprocessing, with the handle on its standard input."""
    program = (
        "import pickle, sys; from aiospin.compat.vllm import MessageQueue;"
        "queue = MessageQueue.create_from_handle(pickle.load(sys.stdin.buffer), 5);"
        "sys.stdout.write(repr(queue.dequeue()))"
    )
    with only_writer((5,)) as queue:
        queue.enqueue(("by", "hand"))
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", program],
            input=pickle.dumps(queue.export_handle()),
            capture_output=True,
            check=True,
        )
        assert (done.stdout, done.stderr) == (b"('by', 'hand')", b"")


def test_the_smallest_ring_is_the_smallest() -> None:
    with only_writer((5,)) as queue:
        assert end(queue)._segment.capacity == RING == _layout.RING_ALIGN
