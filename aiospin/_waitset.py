"""WaitSet: wait for whichever of many readers and writers is ready first.

Every member's bell and its peers' pidfds are in one epoll set, and the epoll set itself is what a loop or a thread
sleeps on. A member is either a candidate (it may be ready; the next wait looks) or armed (it was looked at, has
announced that it sleeps, and will ring). A wait looks at the candidates only, so its cost is in the ready members and
not in the set.

Guarantee: a member that is ready, ended or whose peer died is returned by the next wait; the error surfaces where it is
then used. Nothing is taken by waiting. Assumption: while a member is in a set, only this set waits for it; taking from
it in between is fine. A forked child shares the epoll set with its parent, so the copy of the set there is dead.
"""

from __future__ import annotations

import os
import select
import time
import weakref
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, TypeAlias

from aiospin import _loop
from aiospin._acquire import LOOK_AFTER
from aiospin._deadline import Deadline
from aiospin._endpoint import Endpoint
from aiospin._errors import AiospinError, ForkedUse, QueueClosed, ReaderBusy
from aiospin._finalizers import quiet_at_exit
from aiospin._reader import QueueReader
from aiospin._stall import Stall, tell_set
from aiospin._word import FIRST_NAP, Word
from aiospin._writer import QueueWriter

End: TypeAlias = "QueueReader[Any] | QueueWriter[Any]"
Member: TypeAlias = "End | Word"


class _Entry:
    """One member, and its descriptors in the epoll set."""

    def __init__(self, member: End, room: int) -> None:
        self.member = member
        self.room = room  # bytes that a writer waits for
        self.descriptors: tuple[int, ...] = ()

    def ready(self) -> bool:
        """Look, without taking anything."""
        member = self.member
        if member.closed or not isinstance(member, QueueWriter):
            return member.closed or member._ready()
        try:
            slot = member.try_acquire_write(self.room)
        except AiospinError as error:
            member._fail(error)  # told where the member is used
            return True
        if slot is None:
            return False
        slot.abort()
        return True


class WaitSet:
    """Readers, writers that want room, and words, to be waited for together. For one task or thread at a time.

    `wait()` and `wait_sync()` return a non-empty list of ready members, longest ready first. `timeout` in seconds: None
    for ever, 0 to look once; the built-in TimeoutError. Cancelling a wait takes nothing and changes nothing.
    Closing the set leaves its members as they are. A set is a context manager, also with `async with`.
    """

    def __init__(self, members: Iterable[Member] = ()) -> None:
        self._entries: dict[Endpoint, _Entry] = {}
        self._words: dict[Word, None] = {}
        self._candidates: dict[Endpoint, None] = {}
        self._by_fd: dict[int, Endpoint] = {}
        self._closed = False
        self._gone = False
        self._inherited = False
        self._epoll = select.epoll()
        # Readable once somebody has changed the set or a member, in whatever thread: a wait that sleeps looks again.
        try:
            self._poke_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        except OSError:
            self._epoll.close()
            raise
        self._poked: _Poked | None = _Poked(self._poke_fd)
        self._station: _loop.Station | None = None
        self._waiter: _loop.Future | None = None
        self._turn: _Turn | None = None
        self._period = LOOK_AFTER
        _everyone.add(self)
        try:
            self._epoll.register(self._poke_fd, select.EPOLLIN)
            for member in members:
                self.add(member)
        except BaseException:
            self.close()
            raise

    def add(self, member: Member, *, nbytes: int = 0) -> None:
        """Wait for this one too.

        A reader is ready when there is a message; a writer when `nbytes` have room; a `lowlevel.Word` when its
        condition holds. Claims the role of a reader or writer. Adding a member again changes its `nbytes`. Nobody rings
        for words: while a set has some, its waits look at them between naps of at most the least `max_nap`.
        """
        if not isinstance(member, (QueueReader, QueueWriter, Word)):
            raise TypeError(f"a member is a QueueReader, a QueueWriter or a Word, got {member!r}")
        if isinstance(nbytes, bool) or not isinstance(nbytes, int) or nbytes < 0:
            raise ValueError(f"nbytes must be a whole number of 0 or more, got {nbytes!r}")
        self._open()
        if isinstance(member, Word):
            self._words[member] = None
            self._poke()
            return
        member._claim()
        if member.closed:
            raise QueueClosed(f"{member!r} is closed")
        entry = self._entries.get(member)
        if entry is None:
            entry = self._entries[member] = _Entry(member, nbytes)
            member._sets.add(self)
            member._in_sets = True
            # Its waits must say that they begin: they may drain the bell that this set hears.
            member._home = None
            member._forget_peer()
            self._listen(entry)
        entry.room = nbytes
        self._candidates[member] = None
        self._poke()

    def discard(self, member: Member) -> None:
        """Wait for it no longer. Does nothing if it is not a member."""
        if isinstance(member, Word):
            self._words.pop(member, None)
            return
        entry = self._entries.pop(member, None)
        if entry is None:
            return
        self._candidates.pop(member, None)
        member._sets.discard(self)
        self._ignore(entry)

    def __len__(self) -> int:
        return len(self._entries) + len(self._words)

    def __contains__(self, member: object) -> bool:
        return member in self._entries or member in self._words

    async def wait(self, timeout: float | None = None) -> list[Member]:
        """The members that are ready, when at least one is."""
        deadline, naps = Deadline(timeout), self._naps()
        self._open()
        with _Turn(self):
            self._gather()  # what rang since the last wait, though some member may be ready already
            while not (ready := self._look()):
                deadline.check("no member was ready")
                await self._sleep_in_loop(_sooner(deadline.remaining(), next(naps)))
                self._gather()
            return ready

    def wait_sync(self, timeout: float | None = None) -> list[Member]:
        """`wait()` in this thread. Signals are served."""
        deadline, naps = Deadline(timeout), self._naps()
        self._open()
        with _Turn(self):
            blocking_told = False
            look_after_at = time.monotonic() + self._period
            self._gather()
            while not (ready := self._look()):
                if not blocking_told and _loop.is_running() and timeout != 0:
                    blocking_told = True
                    for member in list(self._entries)[:1]:
                        member._blocking()
                deadline.check("no member was ready")
                nap = next(naps)
                self._gather(min(self._period, _sooner(deadline.remaining(), nap) or LOOK_AFTER))
                if time.monotonic() >= look_after_at:
                    self._look_after()
                    look_after_at = time.monotonic() + self._period
            return ready

    def _naps(self) -> Iterator[float | None]:
        """How long the next sleep may last for the sake of words: twice as long each time; None without words."""
        nap = FIRST_NAP
        while True:
            longest = min((word.max_nap for word in self._words), default=None)
            yield None if longest is None else min(nap, longest)
            nap = min(2 * nap, 1.0)

    def close(self) -> None:
        """Let go of the descriptors. A wait under way, in whatever thread, ends with QueueClosed. Idempotent."""
        if self._closed:
            return
        self._closed = True
        if self._turn is None:
            self._let_go()
        else:
            self._poke()  # the wait lets go

    def _let_go(self) -> None:
        """Once, when the set is closed and nobody waits on it."""
        if self._gone:
            return
        self._gone = True
        for entry in list(self._entries.values()):
            self.discard(entry.member)
        self._words.clear()
        station, self._station = self._station, None
        if station is None:
            self._close_descriptors()
        else:
            station.end(self)
            station.run_soon(self._leave_loop, station)

    def _leave_loop(self, station: _loop.Station) -> None:
        station.ignore(self._epoll.fileno())
        self._close_descriptors()

    def _close_descriptors(self) -> None:
        self._epoll.close()
        self._poked = None

    async def aclose(self) -> None:
        """`close()`, for `contextlib.aclosing` and the like."""
        self.close()

    def __enter__(self) -> WaitSet:
        self._open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> WaitSet:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # looking

    def _touch(self, member: Endpoint) -> None:
        """Somebody waits for the member by itself, and may drain its bell: look at it next time."""
        if member in self._entries:
            self._candidates[member] = None

    def _look_after(self) -> None:
        """Once a second, while a wait sleeps: what bells and pidfds may have failed to say."""
        for member, entry in list(self._entries.items()):
            if member.closed or self._look_for_deaths(entry) or member._ready():
                self._candidates[member] = None
        if self._candidates:
            self._poke()
        if self._turn is not None:
            self._turn.report_stall()

    def _abandon(self) -> None:
        """The loop that waits was closed."""
        self._turn = self._waiter = None
        if self._closed:
            self._let_go()

    def _look(self) -> list[Member]:
        """The candidates that are ready; the others are armed, and candidates no more."""
        self._open()
        ready: list[Member] = [word for word in self._words if word.ready()]
        for member in list(self._candidates):
            entry = self._entries[member]
            if not entry.ready():
                self._listen(entry)
                # A second look after announcing, as for every sleeper.
                if not member._announce() and not entry.ready():
                    del self._candidates[member]
                    continue
            ready.append(entry.member)
        return ready

    def _gather(self, timeout: float = 0) -> bool:
        """Turn what has happened in the epoll set into candidates. False when nothing has."""
        if self._closed:
            return True
        try:
            events = self._epoll.poll(timeout)
        except (OSError, ValueError):
            self._open()  # a signal handler has forked meanwhile, and this is the child
            raise
        for fd, _ in events:
            if fd == self._poke_fd:
                os.eventfd_read(fd)
                continue
            member = self._by_fd.get(fd)
            if member is None:
                continue
            self._candidates[member] = None
            if fd == member._own_bell:
                member._drain()
                member._wake_own()  # the bell may have been meant for it
            else:
                self._look_for_deaths(self._entries[member])
        return bool(events)

    def _look_for_deaths(self, entry: _Entry) -> bool:
        self._ignore(entry)  # pidfds are closed by the look
        try:
            return entry.member._look_for_deaths()
        finally:
            self._listen(entry)

    def _listen(self, entry: _Entry) -> None:
        if entry.member.closed:
            return
        wanted = (entry.member._own_bell, *entry.member._peer_descriptors())
        self._period = min(self._period, entry.member._look_after_period)
        if wanted == entry.descriptors:
            return
        self._ignore(entry)
        for fd in wanted:
            self._epoll.register(fd, select.EPOLLIN)
            self._by_fd[fd] = entry.member
        entry.descriptors = wanted

    def _ignore(self, entry: _Entry) -> None:
        for fd in entry.descriptors:
            del self._by_fd[fd]
            try:
                self._epoll.unregister(fd)
            except OSError:  # its owner has closed it, and the kernel took it out
                continue
        entry.descriptors = ()

    # sleeping

    async def _sleep_in_loop(self, remaining: float | None) -> None:
        station = _loop.here()
        if station is not self._station:
            if self._station is not None:
                self._station.run_soon(self._station.ignore, self._epoll.fileno())
            self._station = station
            station.listen(self._epoll.fileno(), self._on_readable)
        waiter = self._waiter = station.future()
        timer = None if remaining is None else station.call_later(remaining, _loop.wake, waiter)
        station.begin(self, self._period)
        try:
            await waiter
        finally:
            if self._waiter is waiter:
                self._waiter = None
                station.end(self)
            if timer is not None:
                timer.cancel()

    def _on_readable(self) -> None:
        self._gather()
        if self._waiter is not None:
            _loop.wake(self._waiter)

    def _poke(self) -> None:
        """Let whoever waits look again. Any thread."""
        poked = self._poked
        if poked is not None:
            os.eventfd_write(poked.fd, 1)

    def _after_fork(self) -> None:
        """In a child: let go, and change nothing in the epoll set, which is the parent's as well."""
        if self._gone:
            return
        self._closed = self._gone = self._inherited = True
        self._turn = self._waiter = self._station = None
        for member in self._entries:
            member._sets.discard(self)
        for members in (self._entries, self._words, self._candidates, self._by_fd):
            members.clear()
        self._close_descriptors()

    def _open(self) -> None:
        if self._inherited:
            raise ForkedUse("the wait set was made by the parent of this process; make one in each child")
        if self._closed:
            raise QueueClosed("the wait set is closed")


class _Poked:
    """An eventfd that is closed when nobody refers to it, so never under a thread that is about to write to it."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    @quiet_at_exit
    def __del__(self) -> None:
        os.close(self.fd)


class _Turn:
    """One wait on a set. Refuses a second; tells when it has become long."""

    def __init__(self, waits: WaitSet) -> None:
        self._set = waits
        self._began = time.monotonic()
        self._stall: Stall | None = None

    def report_stall(self) -> None:
        """As soon as the most impatient member would by itself."""
        members = list(self._set._entries)
        if not members:
            return
        if self._stall is None:
            self._stall = Stall(min(member._options.stall_after for member in members))
        waited = time.monotonic() - self._began
        if self._stall.due(waited):
            tell_set(
                {f"{member.role_name} of {member._segment.ref.short}": member._peer_stories() for member in members},
                waited,
            )

    def __enter__(self) -> None:
        if self._set._turn is not None:
            raise ReaderBusy("another task or thread waits on this wait set")
        self._set._turn = self

    def __exit__(self, *_: object) -> None:
        if self._set._turn is self:  # else its loop was closed, and somebody else may wait by now
            self._set._turn = None
            if self._set._closed:
                self._set._let_go()


def _sooner(one: float | None, other: float | None) -> float | None:
    return min(one, other) if one is not None and other is not None else one if other is None else other


def wait_any(*members: Member, timeout: float | None = None) -> list[Member]:
    """Which of these are ready, when at least one is. For repeated waits keep a WaitSet."""
    with WaitSet(members) as waits:
        return waits.wait_sync(timeout)


async def await_any(*members: Member, timeout: float | None = None) -> list[Member]:
    """`wait_any` for coroutines."""
    with WaitSet(members) as waits:
        return await waits.wait(timeout)


_everyone: weakref.WeakSet[WaitSet] = weakref.WeakSet()


def _let_go_in_child() -> None:
    for waits in list(_everyone):
        waits._after_fork()


if hasattr(os, "register_at_fork"):  # absent where there is no fork
    os.register_at_fork(after_in_child=_let_go_in_child)
