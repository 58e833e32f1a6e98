"""Large buffers of a message lent to the program where they lie in the ring, writable, and taken back without a copy.

The ring is mapped once more, privately: whoever writes to a lent buffer gets copies of the pages he touches, as mmap(2)
promises, and nobody else sees them. A lent buffer holds its slot's bytes in the ring; when it is held for long, its
pages are all copied, in place, and the ring has its bytes back though the buffer lives on.

    lend     the slot's bytes, at the same place in the private mapping
    over     the buffer has died: pages that were written show the ring again, then the slot's bytes go back
    recall   copy what is not copied yet; the slot's bytes go back now, and the addresses are the buffer's until it dies
    refuse   lend nothing from now on, and recall

Guarantee: a buffer keeps its contents, and the program's changes to them, until it dies; no later message is ever seen
through it. Whatever would break this is not lent: `lend` returns None, and the caller copies.
Assumption: each buffer has its pages for itself (`_wire` lays them out so). Everything here may happen in any thread,
and in the middle of any line of the same one: by the garbage collector, a signal's function, or what that raises.
"""

from __future__ import annotations

import ctypes
import functools
import logging
import os
import threading
import weakref
from collections.abc import Callable
from typing import Any, Final

from aiospin import _layout, _pages
from aiospin._segment import Segment

LEAST: Final = 1 << 20
"""Bytes from which on lending is worth a look at the page tables: copying a MiB costs about 50 us."""

ABSTAINS: Final = 255
"""Large buffers that are copied after one that was lent in vain: it was written to, or held for long. A page costs the
kernel more to copy than a memcpy of it, about 3 us where it takes 0.2, so lending pays only where nobody does that."""

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
        self.buffer: Callable[[], Any] = _dead


def _dead() -> None:
    """What a weak reference to a buffer that is gone returns."""


class Loans:
    """What a reader has lent out."""

    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        self._capacity = segment.capacity
        self._most = segment.capacity // 2 - SLACK // 2  # that may be lent: a chunk, and what it has beside its buffers
        self.lent: dict[int, _Loan] = {}  # what holds bytes of the ring, by a number that only grows: oldest first
        self._recalled: dict[int, _Loan] = {}  # what holds addresses alone
        self.count = 0  # of loans ever made
        self._refuses = False
        self._abstains = 0  # from how many loans more
        self._lock = threading.RLock()  # between lending and recalling
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

    def lend(self, message: memoryview, position: int, offset: int, size: int) -> memoryview | None:
        """A writable buffer of the `size` bytes at `offset` of a message, whose payload is at `position` in the stream.
        None if they cannot be lent: then copy them.
        """
        begin = (position + offset) % self._capacity
        if self._abstains:
            self._abstains -= 1
            return None
        if len(message) > self._most or begin % _pages.BYTES or self.pages is None:
            return None
        loan = _Loan(position, self.pages.address + begin, size, message[offset : offset + size])
        if offset + loan.span > len(message):
            return None  # something else may be on its last page
        with self._lock:
            if self._recall_before(position + len(message) - self._most):
                self.abstain()
            if self._refuses or _forks.under_way or not self._shows_the_ring(loan):
                return None
            buffer: Any = (ctypes.c_ubyte * size).from_address(loan.address)
            self.count += 1
            loan.buffer = weakref.ref(buffer)
            weakref.finalize(buffer, self._over, self.count).atexit = False
            self.lent[self.count] = loan
        return memoryview(buffer).cast("B")

    def _shows_the_ring(self, loan: _Loan) -> bool:
        """Whether nothing private is at these addresses: no recalled buffer, and no page that mlock(2) has copied."""
        if any(_overlap(loan, other) for other in tuple(self._recalled.values())):
            return False
        try:
            return not _pages.has_copies(loan.address, loan.span)
        except OSError:
            return False

    def _over(self, number: int) -> None:
        """The buffer has died. Only then may its pages change; only then may the ring have the bytes.

        Cut short by a signal's exception it can be done again, and is by the next recall.
        """
        loan = self.lent.get(number) or self._recalled.get(number)
        if loan is None:
            return
        try:
            written = number in self._recalled or _pages.has_copies(loan.address, loan.span)
        except OSError:  # no descriptor for it now
            written = True
        try:
            if written:
                self.abstain()
                _pages.forget_copies(loan.address, loan.span)
        except OSError:  # locked in memory: nothing is lent there any more
            self._put_away(number, loan)
            return
        self.lent.pop(number, None)
        self._recalled.pop(number, None)

    def _put_away(self, number: int, loan: _Loan) -> None:
        """The ring has its bytes back; the addresses stay occupied."""
        self._recalled[number] = loan  # first: at no time may they seem to be free
        self.lent.pop(number, None)
        loan.lease = None

    def abstain(self) -> None:
        """Copy the next ones: lending was in vain."""
        self._abstains = ABSTAINS

    def refuse(self) -> None:
        """Lend nothing any more. For a reader that ends."""
        self._refuses = True

    def recall(self) -> None:
        """Recall everything. What there is no memory to copy for stays lent, and a warning says so."""
        self._recall_before(1 << 64)

    def _recall_before(self, position: int) -> bool:
        """Whether there was anything to recall."""
        found = False
        with self._lock:
            for number, loan in tuple(self.lent.items()):
                if loan.position < position and number in self.lent:
                    found = True
                    self._recall(number, loan)
        return found

    def _recall(self, number: int, loan: _Loan) -> None:
        buffer = loan.buffer()
        if buffer is None:
            self._over(number)
            return
        try:
            _pages.copy_privately(loan.address, loan.span)
        except OSError as error:
            _log.warning(f"a buffer of {loan.span} bytes stays in the ring until it is dropped: {error}")
        else:
            self._put_away(number, loan)
        del buffer


class _Forks:
    """Whether this process is forking. A child has the buffers too, and no say in what the ring does with the bytes."""

    under_way = False

    def begin(self) -> None:
        """Let the child have copies, of what is lent until the fork is over."""
        self.under_way = True
        for loans in tuple(_everybodys):
            loans.recall()

    def end(self) -> None:
        """In the parent."""
        self.under_way = False

    def end_in_child(self) -> None:
        """Whichever thread of the parent had a lock, here it never lets go."""
        for loans in tuple(_everybodys):
            loans._lock = threading.RLock()
        self.under_way = False


_everybodys: weakref.WeakSet[Loans] = weakref.WeakSet()
_forks = _Forks()

if hasattr(os, "register_at_fork"):  # absent where there is no fork
    os.register_at_fork(before=_forks.begin, after_in_parent=_forks.end, after_in_child=_forks.end_in_child)


def _overlap(one: _Loan, other: _Loan) -> bool:
    return one.address < other.address + other.span and other.address < one.address + one.span
