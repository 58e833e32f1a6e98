"""Roles that pass from one backend to the other when their holder is killed, and back."""

from __future__ import annotations

from typing import Any

import pytest
from ends import RING, content, fill, size_of
from programs import OTHER, Program

import aiospin

pytestmark = [pytest.mark.native, pytest.mark.usefixtures("leaves_nothing")]


def unclaimed(end: Any) -> str:
    """The text of an end's handle; the end itself is not needed any more."""
    text = str(end.handle)
    end.close()
    return text


def test_writers_of_both_backends_take_over_from_each_other() -> None:
    """Killed after a while, in turns; the numbers and the cursor go on."""
    program = """
        writer = aiospin.attach(arguments["handle"])
        writer.__enter__()
        first = writer._sequence
        for sequence in range(first, first + 37):
            writer.put(content(sequence, size_of(sequence, 3000)))
        claim = writer.try_acquire_write(100)  # of which nothing is ever seen
        say([aiospin.backend, first])
        hear()
    """
    queue: aiospin.Queue[bytes]
    with aiospin.Queue(capacity="256 KiB", on_peer_death="wait", checksum=True) as queue, queue.reader(0) as reader:
        handle = unclaimed(queue.writer())
        for life in range(6):
            backend = (OTHER, aiospin.backend)[life % 2]
            with Program(program, {"handle": handle}, backend=backend) as child:
                assert child.hear() == [backend, 37 * life]
                child.kill()
            for sequence in range(37 * life, 37 * life + 37):
                with reader.acquire_read() as slot:
                    assert (slot.sequence, bytes(slot.data)) == (sequence, content(sequence, size_of(sequence, 3000)))


def test_readers_of_both_backends_take_over_from_each_other() -> None:
    program = """
        reader = aiospin.attach(arguments["handle"])
        reader.__enter__()
        held = []
        for number in range(arguments["first"], arguments["first"] + 10):
            with reader.acquire_read() as slot:
                assert slot.sequence == number and bytes(slot.data) == content(number, 500), (slot, number)
                assert slot.redelivered == (number < arguments["taken"])
        held = [reader.try_acquire_read() for _ in range(5)]
        say([aiospin.backend, held[-1].sequence])
        hear()
    """
    queue: aiospin.Queue[bytes]
    with aiospin.Queue(capacity=RING, on_peer_death="wait") as queue, queue.writer() as writer:
        handle = unclaimed(queue.reader(0))
        assert fill(writer, 500) > 70
        for life in range(6):
            backend = (OTHER, aiospin.backend)[life % 2]
            arguments = {"handle": handle, "first": 10 * life, "taken": 10 * life + 5 if life else 0}
            with Program(program, arguments, backend=backend) as child:
                assert child.hear() == [backend, 10 * life + 14]
                child.kill()
