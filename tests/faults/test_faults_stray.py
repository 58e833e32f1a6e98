"""A reader's stray write into the ring: refused by Python, or a fault of the process that did it, and no more."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
from typing import Any

import numpy as np
import pytest
from ends import RING, content, ends
from programs import Program

import aiospin
from aiospin import _layout

pytestmark = pytest.mark.usefixtures("leaves_nothing")


def fate_of_a_store(address: int) -> int:
    """Store one byte there in a forked process; the signal that ended it, 0 for none."""
    pid = os.fork()
    if pid == 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.signal(signal.SIGSEGV, signal.SIG_DFL)  # no traceback of a fault that is meant
        ctypes.memset(address, 0xFF, 1)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    return os.WTERMSIG(status)


def test_a_view_of_a_slot_cannot_be_written_through() -> None:
    with ends() as (_, writer, (reader,)):
        writer.put(content(0, 100))
        with reader.acquire_read() as slot:
            view = slot.data
            assert view.readonly and view.cast("B").readonly and view[10:].readonly
            with pytest.raises(TypeError, match="read-only"):
                view[0] = 1
            array = np.frombuffer(view, dtype=np.uint8)
            with pytest.raises(ValueError, match=r"read-only|writeable"):
                array[0] = 1
            with pytest.raises(ValueError, match="WRITEABLE"):
                array.flags.writeable = True
            with pytest.raises(TypeError, match=r"read-only|not writable"):
                ctypes.c_char.from_buffer(view)
            with pytest.raises((BufferError, TypeError), match=r"writable|read-write"):
                os.readv(0, [view])
            assert bytes(view) == content(0, 100)
            del view, array


@pytest.mark.parametrize("at", ["payload", "header", "next slot", "end of the ring", "second mapping"])
def test_a_store_into_a_readers_ring_faults(at: str) -> None:
    with ends() as (_, writer, (reader,)):
        writer.put_many([content(0, 100), content(1, 100)])
        with reader.acquire_read() as slot:
            view = slot.data
            payload = int(np.frombuffer(view, dtype=np.uint8).ctypes.data)
            del view
            begin = payload - _layout.SLOT_HEADER_BYTES
            address = {
                "payload": payload,
                "header": begin,
                "next slot": begin + _layout.stride(100),
                "end of the ring": begin + RING - 1,
                "second mapping": begin + RING,
            }[at]
            assert fate_of_a_store(address) == signal.SIGSEGV
            assert bytes(slot.data) == content(0, 100)
        assert reader.get() == content(1, 100)


def test_a_reader_has_no_other_way_into_the_ring() -> None:
    """In a process that only reads, no writable mapping reaches the ring."""
    program = """
        with aiospin.attach(arguments) as reader:
            reader.get()
            with open("/proc/self/maps") as maps:
                say([line for line in maps if "memfd:aiospin" in line])
    """
    with aiospin.Queue[bytes](capacity=RING) as queue, queue.writer() as writer:
        writer.put(b"x")
        with Program(program, str(queue.reader(0).handle)) as child:
            lines: list[Any] = child.hear()
            child.finish()
    ring = _layout.ring_offset(1)
    mapped = [(line.split()[1], int(line.split()[2], 16), line.split()[0].split("-")) for line in lines]
    assert [place for rights, place, _ in mapped if rights.startswith("r--")] == [ring, ring]
    writable = [(place, int(end, 16) - int(begin, 16)) for rights, place, (begin, end) in mapped if "w" in rights]
    assert writable and all(place + length <= ring for place, length in writable)
