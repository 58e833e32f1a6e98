"""One segment in this process's memory: the control words and the ring, mapped twice back to back.

Guarantee: words are read and written whole, in program order on x86; memory stays mapped while anything uses it.
Assumption: the file has at least `ring_offset(readers) + capacity` bytes and nobody shortens it.
"""

from __future__ import annotations

import functools
import threading
import warnings
from typing import Any

from aiospin import _layout, _pages


def _return_bytes(lease: Any) -> None:
    record = lease.record
    record.owner.give(record)


def make_lease_type(length: int) -> Any:
    """A byte array type whose instances give their record back when the last view of them has died."""
    return _pages.byte_array(length, {"__slots__": ("anchor", "record"), "__del__": _return_bytes})


class Lessor:
    """Makes leases: byte arrays that give a record back to its owner when their last view has died."""

    def __init__(self, ring: _pages.Pages, lease_type: Any) -> None:
        self._address = ring.address
        self._anchor = ring.anchor
        self._lease_type = lease_type

    def ring_bytes(self, record: Any, at: int) -> Any:
        """A lease on the ring from byte `at` on. It is longer than the payload: slice it."""
        lease = self._lease_type.from_address(self._address + at)
        lease.anchor = self._anchor
        lease.record = record
        return lease

    def private_bytes(self, record: Any, payload: bytearray) -> Any:
        """A lease on bytes outside of the ring."""
        lease = make_lease_type(len(payload)).from_buffer(payload)
        lease.record = record
        return lease


@functools.cache
def _warn_once() -> None:
    warnings.warn(
        "the pure-Python backend needs a processor that keeps stores in order (x86-64); on this one a peer may see a "
        "message before its bytes: build the native extension",
        RuntimeWarning,
        stacklevel=4,
    )


class Mapping:
    """The mapped segment. Holds no descriptor: both may be closed or kept by whoever passed them.

    `words` is indexed by word (byte offset / 8) from the start of the file; `ring` is read-only and twice the capacity
    long, so that no run of bytes wraps.
    """

    def __init__(self, fd: int, ring_fd: int, readers: int, capacity: int) -> None:
        if not _pages.STORES_ARE_ORDERED:
            _warn_once()
        self.readers = readers
        self.capacity = capacity
        start = _layout.ring_offset(readers)
        control = _pages.map_once(fd, 0, start, _pages.PROT_READ | _pages.PROT_WRITE)
        ring = _pages.map_twice(ring_fd, start, capacity, _pages.PROT_READ)
        self._spare = _pages.map_twice(fd, start, capacity, _pages.PROT_NONE)  # writable from the first writer on
        self._ring = ring
        self.words = control.view.cast("Q")
        self.ring = ring.view.toreadonly()
        self.lease_type = make_lease_type(capacity)
        self._adding = threading.Lock()
        self.barriers = _pages.register_barrier() and _pages.barrier()

    def load(self, offset: int) -> int:
        """The word at a byte offset of the control area."""
        return self.words[offset >> 3]

    def store(self, offset: int, value: int) -> None:
        """Set a word, visible to every process before this returns."""
        self.words[offset >> 3] = value
        _pages.barrier()

    def add(self, offset: int, value: int) -> int:
        """Add to a word that only this process writes; returns what it was. Visible before this returns."""
        with self._adding:
            before = self.words[offset >> 3]
            self.words[offset >> 3] = (before + value) & 0xFFFFFFFFFFFFFFFF
        _pages.barrier()
        return before

    def barrier(self) -> bool:
        """A full barrier in every process that has a Mapping; False when the kernel refuses it."""
        return _pages.barrier()

    def close(self) -> None:
        """Forget the memory. It is unmapped when the last endpoint, lease or view of it is gone. Idempotent."""
        for name in ("words", "ring", "_ring", "_spare"):
            self.__dict__.pop(name, None)

    def lessor(self) -> Lessor:
        """What makes leases on the ring; it keeps the ring mapped by itself."""
        return Lessor(self._ring, self.lease_type)

    def writable_ring(self) -> memoryview:
        """The ring for its writer, twice the capacity long. Until the first call nothing here can write to it."""
        self._spare.protect(_pages.PROT_READ | _pages.PROT_WRITE)
        return self._spare.view
