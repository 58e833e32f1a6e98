"""Large buffers of a message lent to the program where they lie in the ring, writable, and taken back without a copy.

The ring is mapped once more, privately: whoever writes to a lent buffer gets copies of the pages he touches, as mmap(2)
promises, and nobody else sees them. A lent buffer holds its slot's bytes in the ring; when it is held for long, its
pages are all copied, in place, and the ring has its bytes back though the buffer lives on.

    lend     the slot's bytes, at the same place in the private mapping
    over     the buffer has died: pages that were written show the ring again, then the slot's bytes go back
    recall   copy what is not copied yet; the slot's bytes go back now, and the addresses are the buffer's until it dies

Guarantee: a buffer keeps its contents, and the program's changes to them, until it dies; no later message is ever seen
through it. Whatever would break this is not lent: `lend` returns None, and the caller copies.
Assumption: each buffer has its pages for itself (`_wire` lays them out so). One thread at a time lends and recalls;
buffers may die in any thread, and in the middle of any line.
"""

from __future__ import annotations

import ctypes
import functools
import logging
import os
import threading
import weakref
from typing import Any, Final

from aiospin import _layout, _pages
from aiospin._segment import Segment

LEAST: Final = 1 << 20
"""Bytes from which on lending is worth a look at the page tables: copying a MiB costs about 50 us."""

SLACK: Final = 65536
"""Bytes of the ring beyond two chunks: room for what a message has beside its buffers."""

_log = logging.getLogger("aiospin")


class _Loan:
    """One lent buffer."""

    def __init__(self, position: int, address: int, size: int, lease: memoryview) -> None:
        self.position = position  # of its message, in the stream of bytes: from there on the ring is held
        self.address = address
        self.span = -(-size // _pages.BYTES) * _pages.BYTES
        self.lease: memoryview | None = lease  # None once recalled
        self.buffer: weakref.ref[Any] | None = None


class Loans:
    """What a reader has lent out."""

    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        self._capacity = segment.capacity
        self._most = segment.capacity // 2 - SLACK  # that may be lent: what is half as large as the ring has room
        self.lent: dict[int, _Loan] = {}  # what holds bytes of the ring, by a number that only grows: oldest first
        self._recalled: dict[int, _Loan] = {}  # what holds addresses alone
        self._count = 0
        self._recalling = threading.Lock()
        _everybodys.add(self)

    @functools.cached_property
    def pages(self) -> _pages.Pages | None:
        """The ring once more; None where the kernel does not offer what lending needs."""
        segment = self._segment
        start, access = _layout.ring_offset(segment.readers), _pages.PROT_READ | _pages.PROT_WRITE
        try:
            pages = _pages.map_twice(segment.fd, start, segment.capacity, access, private=True)
            _pages.copy_privately(pages.address, _pages.BYTES)
            copied = _pages.has_copies(pages.address, _pages.BYTES)
            _pages.forget_copies(pages.address, _pages.BYTES)
            if not copied or _pages.has_copies(pages.address, _pages.BYTES):
                raise OSError("/proc/self/pagemap does not tell which pages were written")
        except OSError as error:
            _log.info(f"large buffers are copied out of the ring, since it cannot be mapped privately: {error}")
            return None
        return pages

    def lend(self, message: memoryview, position: int, offset: int, size: int) -> Any:
        """A writable buffer of the `size` bytes at `offset` of a message, whose payload is at `position` in the stream.
        None if they cannot be lent: then copy them.
        """
        begin = (position + offset) % self._capacity
        if len(message) > self._most or begin % _pages.BYTES or self.pages is None:
            return None
        self._recall_before(position + len(message) - self._most)
        loan = _Loan(position, self.pages.address + begin, size, message[offset : offset + size])
        if offset + loan.span > len(message):
            return None  # something else may be on its last page
        if any(_overlap(loan, other) for other in tuple(self._recalled.values())):
            return None  # a recalled buffer still has these addresses
        buffer = (ctypes.c_ubyte * size).from_address(loan.address)
        self._count += 1
        loan.buffer = weakref.ref(buffer)
        self.lent[self._count] = loan
        weakref.finalize(buffer, self._over, self._count).atexit = False
        return buffer

    def _over(self, number: int) -> None:
        """The buffer has died. Only then may its pages change; only then may the ring have the bytes."""
        loan = self.lent.get(number) or self._recalled[number]
        try:
            written = number in self._recalled or _pages.has_copies(loan.address, loan.span)
        except OSError:  # no descriptor for it now
            written = True
        if written:
            _pages.forget_copies(loan.address, loan.span)
        if self.lent.pop(number, None) is None:
            del self._recalled[number]

    def recall(self) -> None:
        """Recall everything. What there is no memory to copy for stays lent, and a warning says so."""
        self._recall_before(1 << 64)

    def _recall_before(self, position: int) -> None:
        with self._recalling:
            for number, loan in tuple(self.lent.items()):
                if loan.position < position:
                    self._recall(number, loan)

    def _recall(self, number: int, loan: _Loan) -> None:
        buffer = None if loan.buffer is None else loan.buffer()
        if buffer is None:
            return  # it has died just now
        try:
            _pages.copy_privately(loan.address, loan.span)
        except OSError as error:
            _log.warning(f"a buffer of {loan.span} bytes stays in the ring until it is dropped: {error}")
        else:
            self._recalled[number] = self.lent.pop(number)
            loan.lease = None
        del buffer


_everybodys: weakref.WeakSet[Loans] = weakref.WeakSet()


def _before_fork() -> None:
    """A child has the buffers too, and no say in what the ring does with the bytes: let it have copies."""
    for loans in tuple(_everybodys):
        loans.recall()


def _in_child() -> None:
    for loans in tuple(_everybodys):
        loans._recalling = threading.Lock()  # whichever thread of the parent had it, here it never lets go


if hasattr(os, "register_at_fork"):  # absent where there is no fork
    os.register_at_fork(before=_before_fork, after_in_child=_in_child)


def _overlap(one: _Loan, other: _Loan) -> bool:
    return one.address < other.address + other.span and other.address < one.address + one.span
