"""The mapped segment: words, the doubled ring, lifetimes, and what it must not do to descriptors."""

from __future__ import annotations

import fcntl
import gc
import os
import subprocess
import sys

import pytest
from fallback_rig import PAGE, content, rig

from aiospin import _layout, _pages
from aiospin._fallback import NAME
from aiospin._fallback.crc import crc32c


def mapped(fd: int) -> int:
    """How many ranges of this process map the file."""
    inode = os.fstat(fd).st_ino
    with open("/proc/self/maps", encoding="ascii") as maps:
        return sum(int(line.split()[4]) == inode for line in maps)


def test_name() -> None:
    assert NAME == "fallback"


def test_words_are_those_of_the_file() -> None:
    with rig() as queue:
        offset = _layout.control_offset(1) + _layout.CONTROL_ROOM_NEEDED
        queue.mapping.store(offset, 0x0123456789ABCDEF)
        assert queue.mapping.load(offset) == 0x0123456789ABCDEF
        assert os.pread(queue.fd, 8, offset) == (0x0123456789ABCDEF).to_bytes(8, "little")
        assert queue.mapping.add(offset, 2) == 0x0123456789ABCDEF
        assert queue.mapping.load(offset) == 0x0123456789ABCDF1


def test_add_wraps_like_a_word() -> None:
    with rig() as queue:
        offset = _layout.control_offset(1) + _layout.CONTROL_ROOM_EPOCH
        queue.mapping.store(offset, (1 << 64) - 1)
        assert queue.mapping.add(offset, 1) == (1 << 64) - 1
        assert queue.mapping.load(offset) == 0


def test_ring_is_doubled_and_read_only() -> None:
    with rig() as queue:
        os.pwrite(queue.fd, b"first", _layout.ring_offset(1))
        os.pwrite(queue.fd, b"last.", _layout.ring_offset(1) + PAGE - 5)
        ring = queue.mapping.ring
        assert ring.readonly and len(ring) == 2 * PAGE
        assert ring[PAGE - 5 : PAGE + 5] == b"last.first"
        assert queue.mapping.writable_ring()[PAGE - 5 : PAGE + 5] == b"last.first"


def test_barrier_works_here() -> None:
    with rig() as queue:
        assert queue.mapping.barrier() is queue.mapping.barriers


def test_memory_goes_with_its_last_view_and_no_sooner() -> None:
    with rig() as queue:
        gc.collect()
        before = mapped(queue.fd)
        other = queue.map()
        view = other.ring
        words = other.words
        assert mapped(queue.fd) > before
        other.close()
        other.close()
        del other
        gc.collect()
        assert view[0] == 0 and words[0] == 0
        del view, words
        gc.collect()
        assert mapped(queue.fd) == before


def test_locks_survive_a_mapping_that_dies() -> None:
    """Closing any descriptor of an inode drops the process's locks on it, so a mapping must not keep one."""
    probe = (
        "import fcntl, os, sys\n"
        "try: fcntl.lockf(int(sys.argv[1]), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)\n"
        "except OSError: sys.exit(7)\n"
    )
    with rig() as queue:
        fcntl.lockf(queue.fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        other = queue.map()
        other.close()
        del other
        gc.collect()
        taken = subprocess.run([sys.executable, "-c", probe, str(queue.fd)], pass_fds=[queue.fd], check=False)
        assert taken.returncode == 7


def test_a_bad_descriptor_is_an_error() -> None:
    with pytest.raises(OSError, match="mmap"):
        _pages.map_once(-1, 0, PAGE, _pages.PROT_READ)


def test_checksum_is_castagnoli() -> None:
    assert crc32c(memoryview(b"123456789")) == 0xE3069283
    assert crc32c(memoryview(bytes(32))) == 0x8A9136AA
    assert crc32c(memoryview(b"")) == 0


def test_checksum_does_not_depend_on_where_the_words_are_cut() -> None:
    def plain(payload: bytes) -> int:
        crc = 0xFFFFFFFF
        for byte in payload:
            crc ^= byte
            for _ in range(8):
                crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
        return crc ^ 0xFFFFFFFF

    for size in range(40):
        assert crc32c(memoryview(content(size, size))) == plain(content(size, size))
