"""What tests of whole queues share: ends that close themselves, payloads that prove themselves, waits for a state.

Guarantee: `until` polls a condition up to a deadline that only a hang reaches; nothing here sleeps and hopes.
Assumption: also imported by child processes (programs.py), so it imports nothing of pytest.
"""

from __future__ import annotations

import contextlib
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import aiospin
from aiospin import _layout

RING = 65536  # the smallest capacity, in bytes
LARGEST = RING - 64  # the largest payload of one slot in it

_PATIENCE = 60.0
_pause = threading.Event()


def content(sequence: int, size: int) -> bytes:
    """The bytes that message `sequence` must have when it has that size."""
    return random.Random(sequence).randbytes(size)


def size_of(sequence: int, most: int) -> int:
    """The size of message `sequence`, from 0 to `most`."""
    return random.Random(~sequence).randint(0, most)


@contextlib.contextmanager
def ends(
    readers: int = 1, capacity: int | str = RING, threadsafe: bool = False, **options: Any
) -> Iterator[tuple[aiospin.Queue[Any], aiospin.QueueWriter[Any], list[aiospin.QueueReader[Any]]]]:
    """A queue, its writer and all its readers in this process; closed at the end, whatever happened."""
    with contextlib.ExitStack() as stack:
        queue: aiospin.Queue[Any] = stack.enter_context(aiospin.Queue(readers=readers, capacity=capacity, **options))
        writer = queue.writer(threadsafe=threadsafe)
        stack.callback(writer.close)
        reading = [queue.reader(rank) for rank in range(readers)]
        for reader in reading:
            stack.callback(reader.close)
        yield queue, writer, reading


@contextlib.contextmanager
def pair(
    capacity: int | str = RING, **options: Any
) -> Iterator[tuple[aiospin.QueueWriter[Any], aiospin.QueueReader[Any]]]:
    """Writer and only reader of a queue."""
    with ends(1, capacity, **options) as (_, writer, readers):
        yield writer, readers[0]


def until(condition: Callable[[], object]) -> None:
    """Return once `condition()` is true."""
    deadline = time.monotonic() + _PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "the state that the test waits for never came"
        _pause.wait(0.0005)


def epoch(end: aiospin.QueueReader[Any] | aiospin.QueueWriter[Any]) -> int:
    """How often the role of `end` has announced that it sleeps, whichever process plays it."""
    segment, rank = end._segment, end.rank
    if rank is None:
        return segment.mapping.load(_layout.control_offset(segment.readers) + _layout.CONTROL_ROOM_EPOCH)
    return segment.mapping.load(_layout.reader_offset(segment.readers, rank) + _layout.READER_PARK_EPOCH)


def asleep(end: aiospin.QueueReader[Any] | aiospin.QueueWriter[Any], since: int = 0) -> None:
    """Return once the role of `end` has announced a sleep after the epoch `since`."""
    until(lambda: epoch(end) > since)


def watching(pid: int) -> None:
    """Return once this process has a pidfd of process `pid`: its death is told at once from here on."""
    until(lambda: any(f"\nPid:\t{pid}\n" in _said_of(fd) for fd in os.listdir("/proc/self/fdinfo")))


def _said_of(fd: str) -> str:
    try:
        with open(f"/proc/self/fdinfo/{fd}") as file:
            return file.read()
    except OSError:  # closed since the list was made
        return ""


def fill(writer: aiospin.QueueWriter[Any], size: int = 1000, sequence: int = 0) -> int:
    """Put messages of `size` bytes until there is no room. The number of the next message."""
    while True:
        try:
            writer.put_nowait(content(sequence, size))
        except aiospin.Full:
            return sequence
        sequence += 1
