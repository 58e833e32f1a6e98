"""What a queue takes of the machine, who may write there, and what is left of it when its users are killed."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest
from ends import RING, pair
from programs import Program
from strangers import forgotten

import aiospin
from aiospin import _layout
from aiospin._segment import Segment

pytestmark = pytest.mark.usefixtures("leaves_nothing")

MIB = 1 << 20


def test_a_queue_of_ones_own_making_is_small() -> None:
    """Unless told otherwise: megabytes, which further readers share, and a short message takes a short slot."""
    sizes: list[int] = []
    for readers in (1, 9):
        with aiospin.Queue[bytes](readers=readers) as queue, queue.writer() as writer:
            sizes.append(os.fstat(writer._segment.fd).st_size)
            writer.put(b"short")
            assert queue.statistics().published == 128
    assert sizes[0] <= 5 * MIB and sizes[1] - sizes[0] <= 64 * 1024


OWNER = """
    queue = aiospin.Queue(readers=2)
    ends = [queue.writer(), queue.reader(0), queue.reader(1)]
    for end in ends:
        end.__enter__()
    say([os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")])
    say(str(queue.reader(0).handle))
    hear()
"""


def test_what_is_killed_leaves_no_name_behind() -> None:
    """Nothing that it had open can be reached by a path, so the kernel frees all of it."""
    with Program(OWNER) as child:
        names = child.hear()
        handle = child.hear()
        ours = [name for name in names if "memfd:aiospin" in name]
        assert len(ours) == 2 and not any(map(os.path.exists, ours))
        mapped = re.findall(r"(/\S+)(?: \(deleted\))?$", Path(f"/proc/{child.pid}/maps").read_text(), re.MULTILINE)
        roots = {"/".join(name.split("/")[:3]) for name in (*names, *mapped)}
        assert not {root for root in roots if root.startswith(("/dev/shm", "/run", "/var"))}
        child.signal(signal.SIGKILL)
        child.wait()
        with pytest.raises(aiospin.AttachError, match="owner is gone"):
            aiospin.attach(handle)


USER = """
    for handle in arguments:
        end = aiospin.attach(handle)
        say(end.get().decode())
        end.detach()
    say(sorted(name for name in sys.modules if "tracker" in name or "shared_memory" in name))
"""


def test_nobody_keeps_track_but_the_owner(tmp_path: Path) -> None:
    """A user that comes and goes takes nothing away, and says nothing at its end of leaks that are none."""
    anonymous = aiospin.Queue[bytes](capacity=RING)
    named = aiospin.Queue[bytes](capacity=RING, name="q", directory=tmp_path)
    with anonymous, named:
        for queue in (anonymous, named):
            with queue.writer() as writer:
                writer.put_many([b"for the user", b"for the owner"])
                writer.detach()
        with Program(USER, [str(queue.reader(0).handle) for queue in (anonymous, named)]) as child:
            assert [child.hear() for _ in range(3)] == ["for the user", "for the user", []]
            child.finish()
        assert os.listdir(tmp_path) == ["q"]
        assert [queue.get() for queue in (anonymous, named)] == [b"for the owner"] * 2
    assert os.listdir(tmp_path) == []


def test_a_file_that_is_longer_than_it_says_is_as_long_as_it_says(tmp_path: Path) -> None:
    """Some platforms round a mapping up; the header holds the size that was asked for."""
    made = Segment.create(readers=2, capacity=RING, directory=tmp_path, name="q")
    with forgotten(made):
        os.ftruncate(made.fd, os.fstat(made.fd).st_size + 3 * RING)
        adopted = Segment.adopt(made.ref)
        assert (adopted.capacity, adopted.readers) == (RING, 2)
        assert adopted.mapping.load(_layout.control_offset(2)) == 0
        adopted.drop()
    made.drop()


READER = """
    import ctypes
    reader = aiospin.attach(arguments)
    with reader:
        say(reader.get().decode())
        with open("/proc/self/maps") as maps:
            ours = [line.split()[:3] for line in maps if "memfd:aiospin" in line]
        say(ours)
        outcomes = []
        for place, mode, offset in ours:
            if mode == "r--s":
                first, last = (int(address, 16) for address in place.split("-"))
                outcomes.append(ctypes.CDLL(None).mprotect(ctypes.c_void_p(first), ctypes.c_size_t(last - first), 3))
        say(outcomes)
"""


def test_a_reader_maps_the_payload_so_that_it_cannot_be_written() -> None:
    with pair() as (writer, reader):
        writer.put(b"untouched")
        with Program(READER, str(reader.handle)) as child:
            assert child.hear() == "untouched"
            maps = child.hear()
            assert {mode for _, mode, offset in maps if int(offset, 16) == 0} == {"rw-s"}
            ring = [mode for _, mode, offset in maps if int(offset, 16) >= _layout.ring_offset(1)]
            assert ring.count("r--s") == 2 and set(ring) <= {"r--s", "---s"}
            assert child.hear() == [-1, -1], "a mapping of a read-only descriptor can never become writable"
            child.finish()
