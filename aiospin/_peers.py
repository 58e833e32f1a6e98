"""Peers: who else lives on a segment, and who died.

Guarantee: each death is reported once per Peers object. The lock decides; a pidfd, where there is one, only makes it
prompt. A pidfd that has fired is closed at the next `check`, so it never spins a poll loop.
Assumption: one endpoint uses one Peers object, from one thread at a time.
"""

from __future__ import annotations

import errno
import os
import select
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from aiospin import _degraded, _host, _layout, _roles
from aiospin._segment import Segment

State = Literal["never attached", "alive", "stopped", "dead", "detached", "closed"]


@dataclass(frozen=True)
class Death:
    """A role whose holder died without giving it back. `pid` is 0 when it lived in another PID namespace."""

    role: int
    pid: int
    tenure: int
    noticed: Literal["pidfd", "lock"] = field(default="lock", compare=False)
    """Whether a pidfd had told, which wakes at once, or only the lock, which is looked at once a second."""


@dataclass
class _Sighting:
    """What was seen of the holder during one tenure."""

    tenure: int
    pid: int = 0
    pidfd: int | None = None
    reported: bool = False
    living: bool = False  # somebody was seen to hold the role, in this tenure or before


class Peers:
    """Liveness of the given roles, as one endpoint sees it. Opens nothing before `refresh`."""

    def __init__(self, segment: Segment, roles: Sequence[int]) -> None:
        self._segment = segment
        self._seen = {role: _Sighting(tenure=0) for role in roles}
        self.missed = False  # somebody had gone by the time we first looked: only `check` will tell
        self._retired: list[int] = []  # pidfds of predecessors, which somebody may still poll
        _everyone.add(self)

    def is_stale(self) -> bool:
        """Whether somebody took a role since `refresh`. Opens and closes nothing."""
        return any(self._tenure(role) != sighting.tenure for role, sighting in self._seen.items())

    def refresh(self) -> bool:
        """Open pidfds for holders not seen before. True if the set of descriptors changed. Cheap when nothing did.

        A predecessor's pidfd stays open until the next refresh: its successor's never has the same number, so that a
        poll set can be brought up to date by comparing numbers.
        """
        self._close_retired()
        changed = False
        for role, sighting in self._seen.items():
            tenure = self._tenure(role)
            if tenure == sighting.tenure:
                continue
            new = self._seen[role] = self._sight(role, tenure, sighting.living)
            changed = changed or new.pidfd is not None or sighting.pidfd is not None
            if sighting.pidfd is not None:
                self._retired.append(sighting.pidfd)
        return changed

    def fds(self) -> dict[int, int]:
        """Descriptors that become readable when a holder ends, each with its role."""
        return {sighting.pidfd: role for role, sighting in self._seen.items() if sighting.pidfd is not None}

    def check(self) -> list[Death]:
        """The deaths not reported yet. Call when a pidfd is readable, and now and then: not every peer has one.

        Closes the pidfds of those who ended; remove them from poll sets first, or look at `fds` again afterwards.
        """
        self.refresh()
        self.missed = False
        return [death for role in list(self._seen) if (death := self._check(role)) is not None]

    def state(self, role: int) -> State:
        """How a role stands at this moment."""
        pid = _roles.holder(self._segment, role)
        if pid is not None:
            return "stopped" if pid and _host.is_stopped(pid) else "alive"
        if self._tenure(role) == 0 and not self._seen[role].living:
            return "never attached"
        if self._left(role):
            return "closed"
        return "detached" if self._dead_seat(role) is None else "dead"

    def pid(self, role: int) -> int:
        """The pid of who holds a role, or held it last; 0 when nobody did, or in another PID namespace."""
        holder = _roles.holder(self._segment, role)
        if holder is not None:
            return holder
        seat = _roles.seat(self._segment, role)
        return seat.pid if seat.pid_namespace == _host.pid_namespace() else 0

    def close(self) -> None:
        """Close every pidfd. Idempotent."""
        for sighting in self._seen.values():
            _forget(sighting)
        self._close_retired()

    def _close_retired(self) -> None:
        while self._retired:
            os.close(self._retired.pop())

    def _tenure(self, role: int) -> int:
        at = _layout.seat_offset(self._segment.readers, role) + _layout.SEAT_STATE
        return self._segment.mapping.load(at) >> _layout.SEAT_TENURE_SHIFT

    def _sight(self, role: int, tenure: int, living: bool) -> _Sighting:
        """Look at the holder of a new tenure. One that is gone by now gets no pidfd; `check` will find out why."""
        sighting = _Sighting(tenure, living=living)
        pid = _roles.holder(self._segment, role)
        if pid is None:
            self.missed = True
            seat = _roles.seat(self._segment, role)
            sighting.pid = seat.pid if seat.pid_namespace == _host.pid_namespace() else 0
            return sighting
        sighting.pid, sighting.living = pid, True
        if pid not in (0, os.getpid()):
            sighting.pidfd = _open_pidfd(self._segment, role, pid)
        return sighting

    def _check(self, role: int) -> Death | None:
        sighting = self._seen[role]
        if _roles.holder(self._segment, role) is not None:
            if sighting.pidfd is not None and _has_fired(sighting.pidfd):
                _forget(sighting)  # a successor sits there already
            return None
        noticed: Literal["pidfd", "lock"] = "lock"
        if sighting.pidfd is not None and _has_fired(sighting.pidfd):
            noticed = "pidfd"
        _forget(sighting)
        seat = self._dead_seat(role)
        if seat is None or seat.tenure != sighting.tenure or sighting.reported:
            return None  # a tenure that ended since `refresh` is for the next check
        sighting.reported = True
        return Death(role, sighting.pid, sighting.tenure, noticed)

    def _dead_seat(self, role: int) -> _roles.Seat | None:
        """The seat if it was not given back and the lock is free, both at one moment.

        The seat is read on both sides of the lock: a holder that leaves in between empties it, and one that comes in
        between changes the tenure. A seat that was scribbled on does not hide a death.
        """
        before = _roles.seat(self._segment, role)
        if self._is_empty(role, before) or _roles.holder(self._segment, role) is not None:
            return None
        after = _roles.seat(self._segment, role)
        return None if self._is_empty(role, after) or after.tenure != before.tenure else after

    def _is_empty(self, role: int, seat: _roles.Seat) -> bool:
        """Given back, or never taken; but not by whom we saw there."""
        return seat.vacated or (seat.tenure == 0 and not seat.present and not self._seen[role].living)

    def _left(self, role: int) -> bool:
        """The role was given up on purpose, for good."""
        load, readers = self._segment.mapping.load, self._segment.readers
        if role == _layout.WRITER:
            return bool(load(_layout.control_offset(readers) + _layout.CONTROL_WRITER_CLOSED))
        return bool(load(_layout.reader_offset(readers, role - 1) + _layout.READER_STAY) & 1)


_everyone: weakref.WeakSet[Peers] = weakref.WeakSet()


def _open_pidfd(segment: Segment, role: int, pid: int) -> int | None:
    """A pidfd of the holder; None if the kernel refuses one, or the holder ended and its pid may be someone else's."""
    try:
        pidfd = os.pidfd_open(pid)
    except OSError as error:
        if error.errno in (errno.ENOSYS, errno.EPERM):
            _degraded.tell(f"pidfd_open ({error.strerror})", "deaths are noticed within a second, by the lock")
        return None
    if _roles.holder(segment, role) == pid:
        return pidfd
    os.close(pidfd)
    return None


def _has_fired(pidfd: int) -> bool:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(0))


def _forget(sighting: _Sighting) -> None:
    pidfd, sighting.pidfd = sighting.pidfd, None  # first: a signal's exception may come right after the close
    if pidfd is not None:
        os.close(pidfd)


def _close_in_child() -> None:
    """A forked child watches for itself, if at all: descriptors of the parent's watch are of no use to it."""
    for peers in list(_everyone):
        peers.close()


if hasattr(os, "register_at_fork"):  # absent where there is no fork
    os.register_at_fork(after_in_child=_close_in_child)
