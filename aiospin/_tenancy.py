"""A role in use: from the claim of an endpoint until its last lease is gone.

The backend keeps the tenancy alive for as long as bytes of the ring are lent out, and its end gives the role up. So a
successor never begins, and the writer never goes on, while somebody still looks at bytes that were not given back.

Guarantee: the role is given up once, in the way that was asked for, or as a death when nobody asked: peers then hear
of it, and a successor finds every slot that was not released.
"""

from __future__ import annotations

import enum

from aiospin import _backend, _layout, _roles
from aiospin._finalizers import quiet_at_exit
from aiospin._segment import Segment


class End(enum.Enum):
    """How a role is given up."""

    ABANDON = "abandon"  # closed by nobody: to the peers, a death
    DETACH = "detach"  # the place is kept for a successor
    CLOSE = "close"  # on purpose: a reader stops gating, a writer ends the stream


class Tenancy:
    """Holds a segment and one role of it. RoleTaken if a living process has the role."""

    def __init__(self, segment: Segment, role: int) -> None:
        self._ended = True
        self.ending = End.DETACH  # until somebody is there to close it, and misses to
        self._segment = segment
        self._role = role
        self._generation = _roles.fork_generation()
        segment.hold()
        try:
            self._tenure = _roles.claim(segment, role, light=_backend.name == "fallback")
            self._ended = False
        except BaseException:
            segment.drop()
            raise

    @property
    def inherited(self) -> bool:
        """This is a forked child, and the role is its parent's."""
        return self._generation != _roles.fork_generation()

    def end(self) -> None:
        """Give the role up now. Idempotent; in a forked child it only forgets."""
        if self._ended:
            return
        if not self.inherited:  # cut short by a signal's exception, all of this can be done again
            if self.ending is End.CLOSE:
                self._say_goodbye()
            _roles.release(self._segment, self._role, vacate=self.ending is not End.ABANDON)
            self._ring()
        self._ended = True
        self._segment.drop()

    @quiet_at_exit
    def __del__(self) -> None:
        try:
            self.end()
        finally:  # a signal's exception may have cut it short, and nobody else will do it
            self.end()

    def _say_goodbye(self) -> None:
        readers, mapping = self._segment.readers, self._segment.mapping
        if self._role == _layout.WRITER:
            # sync:shutdown seq_cst: everything published lies before it.
            mapping.store(_layout.control_offset(readers) + _layout.CONTROL_WRITER_CLOSED, 1)
        else:
            stay = _layout.reader_offset(readers, self._role - 1) + _layout.READER_STAY
            if mapping.load(stay) % 2 == 0:
                mapping.add(stay, 1)

    def _ring(self) -> None:
        """Wake everybody whom the end concerns: the writer, or every reader."""
        if self._role == _layout.WRITER:
            for rank in range(self._segment.readers):
                self._segment.ring(_layout.reader_role(rank))
        else:
            self._segment.ring(_layout.WRITER)
