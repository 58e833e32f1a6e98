"""Roles are locks: one byte of the segment file, locked with F_SETLK for as long as a process plays the role.

Guarantee: the lock is the truth about life. The kernel frees it when the process dies, however it dies; two takers
cannot both win; and it is visible in every PID namespace. The seat in shared memory says who sits there, for messages
and barriers.
Assumption: the kernel does not show a process its own POSIX locks, so roles of this process are in `segment.claims`.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

from aiospin import _host, _layout
from aiospin._descriptors import first_lock, try_lock
from aiospin._errors import RoleTaken
from aiospin._segment import Segment, registry

if sys.platform != "win32":  # there this file only has to import
    import fcntl

_TENURES = 1 << (64 - _layout.SEAT_TENURE_SHIFT)


@dataclass(frozen=True)
class Seat:
    """What a role's seat says. Trust `tenure` and `flags`; the lock knows better about the rest."""

    tenure: int  # how often the role was claimed
    pid: int
    start: int
    pid_namespace: int
    flags: int

    @property
    def present(self) -> bool:
        """Claimed and not given back since, by a holder that may have died."""
        return bool(self.flags & _layout.SEAT_PRESENT)

    @property
    def vacated(self) -> bool:
        """Given back on purpose. A claimed seat without a holder is this, or `present`, or was scribbled on."""
        return self.flags == _layout.SEAT_VACATED

    @property
    def light(self) -> bool:
        """The holder publishes with plain stores: sleep only after a process-wide barrier."""
        return bool(self.flags & _layout.SEAT_LIGHT)


def fork_generation() -> int:
    """How many forks lie behind this process. An endpoint claimed in another generation belongs to the parent."""
    return registry.generation


def claim(segment: Segment, role: int, *, light: bool = False) -> int:
    """Take a role for this process and return its tenure. RoleTaken if a living process holds it, even this one."""
    _check_role(segment, role)
    with registry.lock:
        if role in segment.claims:
            raise RoleTaken(_layout.role_name(role), os.getpid())
        _lock(segment, role)
        before = seat(segment, role).tenure
        try:
            segment.claims[role] = _sit_down(segment, role, light)
            return segment.claims[role]
        except BaseException:  # a signal's, say: what has begun must not look like a death when the lock goes
            _stand_up(segment, role, vacate=seat(segment, role).tenure != before)
            raise


def release(segment: Segment, role: int, *, vacate: bool = True) -> None:
    """Give a role back. Does nothing if this process does not hold it: given back before, or claimed before a fork.

    Without `vacate` the seat stays taken, so that peers report a death.
    """
    with registry.lock:
        if role not in segment.claims:
            return
        _stand_up(segment, role, vacate)
        segment.settle()


def holder(segment: Segment, role: int) -> int | None:
    """The pid of the living process that has a role: 0 if it lives in another PID namespace, None if nobody has it."""
    _check_role(segment, role)
    with registry.lock:
        return os.getpid() if role in segment.claims else _locker(segment, role)


def seat(segment: Segment, role: int) -> Seat:
    """Read a seat, word by word. Its holder may be writing it."""
    at, load = _layout.seat_offset(segment.readers, role), segment.mapping.load
    state = load(at + _layout.SEAT_STATE)
    return Seat(
        tenure=state >> _layout.SEAT_TENURE_SHIFT,
        pid=load(at + _layout.SEAT_PID),
        start=load(at + _layout.SEAT_START),
        pid_namespace=load(at + _layout.SEAT_PID_NAMESPACE),
        flags=state & ((1 << _layout.SEAT_TENURE_SHIFT) - 1),
    )


def _check_role(segment: Segment, role: int) -> None:
    if not 0 <= role <= segment.readers:
        raise ValueError(f"role must be from 0 to {segment.readers}, got {role}")


def _lock(segment: Segment, role: int) -> None:
    while not try_lock(segment.fd, role, 1):
        pid = _locker(segment, role)
        if pid is not None:
            raise RoleTaken(_layout.role_name(role), pid)
        # The holder went between the two calls: try again.


def _locker(segment: Segment, role: int) -> int | None:
    """Who else has the byte locked, as F_GETLK tells: pid 0 when the kernel cannot name it here."""
    found = first_lock(segment.fd, role, 1)
    return None if found is None else found[2]


def _stand_up(segment: Segment, role: int, vacate: bool) -> None:
    """Cut short by a signal's exception, it can be done again: the claim goes last."""
    if vacate:  # before unlocking: whoever finds the lock free and the seat taken reports a death
        at = _layout.seat_offset(segment.readers, role) + _layout.SEAT_STATE
        tenure = seat(segment, role).tenure << _layout.SEAT_TENURE_SHIFT
        segment.mapping.store(at, tenure | _layout.SEAT_VACATED)
    fcntl.lockf(segment.fd, fcntl.LOCK_UN, 1, role)
    segment.claims.pop(role, None)


def _sit_down(segment: Segment, role: int, light: bool) -> int:
    at, mapping = _layout.seat_offset(segment.readers, role), segment.mapping
    # Never 0, which says that nobody ever sat there, not even where a scribble has left it at the end.
    tenure = (seat(segment, role).tenure + 1) % _TENURES or 1
    mapping.store(at + _layout.SEAT_PID, os.getpid())
    mapping.store(at + _layout.SEAT_START, _host.start_time(os.getpid()))
    mapping.store(at + _layout.SEAT_PID_NAMESPACE, _host.pid_namespace())
    # Tenure and presence in one store, the last: a claimant that is killed before it has not come, one killed after it
    # is a death.
    flags = _layout.SEAT_PRESENT | (_layout.SEAT_LIGHT if light else 0)
    mapping.store(at + _layout.SEAT_STATE, tenure << _layout.SEAT_TENURE_SHIFT | flags)
    return tenure
