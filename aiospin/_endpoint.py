"""What QueueReader and QueueWriter share off the hot path: claiming, ending, travelling, peers, stalls.

Guarantee: an endpoint claims its role at first use and gives it up once. Unclaimed endpoints pickle; after a fork an
endpoint claimed before it raises ForkedUse. Deaths of peers surface where this endpoint waits, once each.
Assumption: mixed into a class of the backend, whose hooks it implements (see _native.pyi).
"""

from __future__ import annotations

import threading
import warnings
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any

from aiospin import _codec, _degraded, _layout, _loop, _roles, _travel
from aiospin._acquire import LOOK_AFTER, LOOK_AFTER_UNBARRIERED, Line
from aiospin._errors import BlockingInEventLoopWarning, ForkedUse, PeerDied, QueueClosed
from aiospin._exhaustion import descriptors_for
from aiospin._finalizers import quiet_at_exit
from aiospin._handle import Handle
from aiospin._peers import Peers
from aiospin._policy import WaitPolicy, resolve
from aiospin._preflight import usable_cpus
from aiospin._segment import Segment, registry
from aiospin._stall import Peer, Stall, Waiter, tell
from aiospin._statistics import Statistics, lag_of_each, survey, taken_by
from aiospin._tenancy import End, Tenancy


@dataclass(frozen=True)
class Options:
    """How an endpoint behaves; travels with it."""

    codec: str = "bytes"
    policy: WaitPolicy | None = None
    on_peer_death: str = "raise"
    stall_after: float = 10.0
    threadsafe: bool = False

    def __post_init__(self) -> None:
        if self.on_peer_death not in ("raise", "wait"):
            raise ValueError(f"on_peer_death must be 'raise' or 'wait', got {self.on_peer_death!r}")
        if isinstance(self.stall_after, bool) or not isinstance(self.stall_after, (int, float)):
            raise TypeError(f"stall_after must be a number of seconds, got {self.stall_after!r}")
        if not self.stall_after > 0:
            raise ValueError(f"stall_after must be above 0 seconds, got {self.stall_after!r}")


if TYPE_CHECKING:

    class _Core:
        """What both ends have from the backend (see _native.pyi)."""

        def _shut(self, error: BaseException | None, /) -> None: ...
        def _fail(self, error: BaseException, /) -> None: ...
        def _ready(self) -> bool: ...
        def _announce(self) -> bool: ...
        def _drain(self) -> None: ...
        def _horizon_us(self) -> float: ...
        def _monitor(self, completion: Any, token: int, horizon_us: float, /) -> None: ...
        def _unmonitor(self) -> None: ...
        def _counters(self) -> dict[str, int]: ...
        def _wake_parked(self) -> bool: ...
        def _forget_peer(self) -> None: ...
        def _bell_callback(self) -> Callable[[], None]: ...

        _home: Any

        @property
        def _in_vain(self) -> bool: ...
        @property
        def _queued(self) -> int: ...
        @property
        def _parked_operation(self) -> Any: ...
        @property
        def _parked_ns(self) -> int: ...
        @property
        def _opened(self) -> bool: ...
        @property
        def _cursor(self) -> int: ...
        @property
        def _sequence(self) -> int: ...

        # and what reader and writer differ in

        def _open_role(self, bells: dict[int, int], tenancy: Tenancy) -> None: ...
        def _peer_roles(self) -> tuple[int, ...]: ...
        def _concerns(self, role: int) -> bool: ...
        def _announce_arrival(self) -> None: ...

else:
    _Core = object


class Endpoint(_Core):
    """The cold half of a reader or writer."""

    _tenancy: Tenancy | None
    _closed: bool

    def __init__(self, segment: Segment, role: int, options: Options) -> None:
        self._closed = True  # until there is something to close
        self._segment = segment
        self._role_number = role
        self._options = options
        self._coder = _codec.find(options.codec)
        self._horizon = resolve(options.policy).horizon()
        self._tenancy = None
        self._claiming = threading.RLock()  # a first use by several threads at once claims once
        self._generation = _roles.fork_generation()  # in which it was made, or begun anew
        self._peers: Peers | None = None
        self._own_bell = -1
        self._line = Line()
        self._sets: weakref.WeakSet[Any] = weakref.WeakSet()  # the WaitSets it is in
        self._in_sets = False  # or was
        self._blocking_told = False
        self._stall = Stall(options.stall_after)
        self._tell = tell  # who a stall is told
        self._look_after_period = LOOK_AFTER
        segment.bells_for(role)  # now: when the owner is gone, nobody can be asked for them
        segment.hold()
        self._closed = False

    # what it is

    @property
    def rank(self) -> int | None:
        """The reader's rank, or None for the writer."""
        return _layout.role_rank(self._role_number)

    @property
    def role_name(self) -> str:
        """ "writer" or "reader 3"."""
        return _layout.role_name(self._role_number)

    @property
    def handle(self) -> Handle:
        """Names this endpoint as text: `aiospin.attach(str(endpoint.handle))` in any process of the same user."""
        return Handle(self._segment.ref, self._role_number, self._options.codec)

    @property
    def closed(self) -> bool:
        """Whether it was closed or detached."""
        return self._closed

    def statistics(self) -> Statistics:
        """A frozen snapshot: cursors and lags of the queue, and what this endpoint's waits came to."""
        return survey(self._segment, [self])

    def __repr__(self) -> str:
        state = "closed" if self._closed else "claimed" if self._tenancy is not None else "unclaimed"
        return f"<{type(self).__name__} {self.role_name} of {self._segment.ref.name}, {state}>"

    # life

    def claim(self) -> None:
        """Take the role now instead of at the first use: RoleTaken when a living process has it. Idempotent."""
        self._claim()

    def __enter__(self) -> Any:
        self._claim()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Any:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def detach(self) -> None:
        """Give the role up and keep the place: a successor goes on where this one has released up to. Idempotent."""
        self._end(End.DETACH)

    def close(self) -> None:
        """Leave for good. Idempotent, never waits.

        A reader stops gating the writer: what it has not read is not kept for it, and whoever claims the rank later
        starts at what is published then. A writer ends the stream: readers drain it, then get QueueClosed. Slots
        that are still held stay valid, and the role is given up with the last of them. A wait that is under way in
        another task or thread ends with QueueClosed.
        """
        self._end(End.CLOSE)

    async def aclose(self) -> None:
        """`close()`, for `contextlib.aclosing` and the like."""
        self.close()

    def _end(self, ending: End) -> None:
        if self._closed:
            return
        if self._tenancy is not None:
            self._tenancy.ending = ending
        self._closed = True
        tenancy, self._tenancy = self._tenancy, None
        self._shut(None)
        for waits in list(self._sets):
            waits._touch(self)
            waits._poke()
        self._line.wake_all()
        station = self._line.station
        if station is None:
            self._let_go(tenancy)
        else:
            station.run_soon(self._let_go, tenancy)

    def _let_go(self, tenancy: Tenancy | None) -> None:
        """Descriptors leave the loop before whoever owns them may close them."""
        if self._line.station is not None and self._line.station.loop is not None:
            self._wake_parked()
        self._line.close(self)
        if self._peers is not None:
            self._peers.close()
        self._segment.drop()
        del tenancy  # ends here, unless bytes are lent out

    @quiet_at_exit
    def __del__(self) -> None:
        if getattr(self, "_closed", True):
            return
        if self._tenancy is None:
            self._end(End.DETACH)
            return
        try:
            warnings.warn(f"{self!r} was never closed", ResourceWarning, source=self, stacklevel=2)
        finally:  # where warnings are errors too
            self._end(End.ABANDON)

    def __reduce__(self) -> Any:
        if self._tenancy is not None:
            raise TypeError(f"{self!r} is in use by this process; hand out unclaimed endpoints")
        if self._closed:
            raise TypeError(f"{self!r} cannot travel any more")
        return _restore, (type(self), self.handle, _travel.travel(self._segment, self._role_number), self._options)

    # hooks of the backend

    def _claim(self) -> None:
        """Take the role. RoleTaken(pid) if a living process has it, QueueClosed if this endpoint was closed."""
        if self._generation != _roles.fork_generation():
            self._notice_fork()
        with self._claiming:
            if self._closed:
                raise QueueClosed(f"{self.role_name} is closed")
            if self._tenancy is None:
                self._claim_role()

    def _notice_fork(self) -> None:
        """In a child: ForkedUse for what the parent has claimed. Anything else begins anew, its lock included."""
        with registry.lock:
            if self._tenancy is not None or self._opened:
                raise ForkedUse(
                    f"{self.role_name} was claimed by the parent of this process; give each child its own endpoint"
                )
            if self._generation != registry.generation:
                self._claiming = threading.RLock()  # whichever thread of the parent had it, here it never lets go
                self._generation = registry.generation

    def _claim_role(self) -> None:
        peers = len(self._peer_roles())
        with descriptors_for(f"claiming the role of {self.role_name}", peers + 1):  # pidfds, and one to look at /proc
            self._take_role()

    def _take_role(self) -> None:
        segment = self._segment
        bells = segment.bells_for(self._role_number)
        tenancy = Tenancy(segment, self._role_number)
        try:
            self._own_bell = bells[self._role_number]
            self._open_role(bells, tenancy)
        except BaseException:
            tenancy.end()
            raise
        self._tenancy = tenancy
        tenancy.ending = End.ABANDON  # unless close() or detach() says otherwise
        self._peers = Peers(segment, self._peer_roles())
        self._meet_peers()
        self._announce_arrival()
        self._look_for_deaths()  # who died before we came has no pidfd to tell; the first wait does

    def _suspend(self, operation: Any, remaining: float | None) -> _loop.Future:
        self._stall.begin(self._cursor)
        return self._line.suspend(self, operation, remaining)

    def _leave(self, operation: Any) -> None:
        self._stall.over()
        self._line.leave(self, operation)
        if self._opened and self._line.waits:  # the next one's turn begins
            self._stall.begin(self._cursor)

    def _kick(self) -> None:
        """The bell was drained, or something else may have made this end ready."""
        if self._in_sets:
            for waits in list(self._sets):
                waits._touch(self)
                waits._poke()
        self._wake_own()

    def _wake_own(self) -> None:
        """Let whoever waits for this end by itself attempt again."""
        if not self._wake_parked():
            self._line.kick()

    def _blocking(self) -> None:
        if self._blocking_told:
            return
        self._blocking_told = True
        warnings.warn(
            f"a blocking call of {self.role_name} waits in a thread whose event loop is running; await it instead",
            BlockingInEventLoopWarning,
            stacklevel=2,
        )

    def _peer_fds(self) -> list[int]:
        self._touch_sets()
        return self._peer_descriptors()

    def _has_new_peers(self) -> bool:
        return self._peers is not None and self._peers.is_stale()

    def _touch_sets(self) -> None:
        """A wait that begins here may drain the bell that wait sets listen to."""
        if self._in_sets:
            for waits in self._sets:
                waits._touch(self)

    def _peer_descriptors(self) -> list[int]:
        """The pidfds of live peers, up to date."""
        if self._peers is None:
            return []
        if self._peers.refresh():
            self._meet_peers()
        if self._peers.missed and self._look_for_deaths():
            self._segment.ring(self._role_number)  # no pidfd will: the sleep that is about to begin ends at once
        return list(self._peers.fds())

    def _meet_peers(self) -> None:
        """Tell the policy how many CPUs there are for everybody on this queue, pinned or not.

        And sleep no longer than a peer allows whose plain stores the kernel will not order.
        """
        segment = self._segment
        holders = (_roles.holder(segment, role) for role in range(segment.readers + 1))
        self._horizon.cpus = usable_cpus(*{pid for pid in holders if pid})
        seats = (_roles.seat(segment, role) for role in range(segment.readers + 1))
        unordered = any(seat.light for seat in seats) and not segment.mapping.barrier()
        if unordered:
            _degraded.tell("membarrier", "beside a peer on the pure-Python backend every sleep is bounded to 10 ms")
        self._look_after_period = LOOK_AFTER_UNBARRIERED if unordered else LOOK_AFTER

    def _recheck(self, waited: float) -> None:
        self._look_for_deaths()
        self._report_stall(waited)

    # in the loop

    def _on_peer(self) -> None:
        if self._look_for_deaths():
            self._kick()
        self._line.listen_to_peers(self)

    def _look_after(self) -> None:
        """Once a second, while a task waits: what bells and pidfds may have failed to say."""
        if self._closed or not self._opened:
            return
        if self._queued == 0:  # waits that the backend parked by itself do not say that they have ended
            station, self._home = self._line.station, None
            if station is not None:
                station.end(self)
            return
        died = self._look_for_deaths()
        self._line.listen_to_peers(self)
        if died or self._ready():
            self._kick()
        self._report_stall(self._stall.waited(self._cursor, self._parked_ns))

    def _abandon(self) -> None:
        """The loop that waits was closed."""
        parked = self._parked_operation
        if parked is not None:
            parked.close()
        self._line.abandon()

    def _look_for_deaths(self) -> bool:
        """Whether the next attempt has a death to tell."""
        if self._peers is None:
            return False
        self._forget_peer()
        for fd in self._peers.fds():
            self._line.forget_descriptor(fd)
        deaths = [death for death in self._peers.check() if self._concerns(death.role)]
        if not deaths or self._options.on_peer_death == "wait":
            return False
        for death in deaths:
            self._fail(PeerDied(_layout.role_rank(death.role), death.pid, death.noticed))
        return True

    def _report_stall(self, waited: float) -> None:
        if not self._stall.due(waited) or self._peers is None:
            return
        statistics = self.statistics()
        waiter = Waiter(
            role="writer" if self.rank is None else "reader",
            rank=self.rank,
            queue=self._segment.ref.short,
            slot=self._sequence,
            cursor=self._cursor,
            published=statistics.published,
            held=statistics.leases,
            views=statistics.views,
        )
        self._tell(waiter, self._peer_stories(), waited)

    def _peer_stories(self) -> list[Peer]:
        """How everybody on the other side stands, for a log line."""
        peers, segment = self._peers, self._segment
        if peers is None:
            return []
        lags = {_layout.reader_role(rank): lag for rank, lag in enumerate(lag_of_each(segment))}
        return [
            Peer(
                role=_layout.role_name(role).replace(" ", "_"),
                state=peers.state(role),
                pid=peers.pid(role),
                lag=lags.get(role) or 0,
                taken=0 if role == _layout.WRITER else taken_by(segment, role - 1),
            )
            for role in self._peer_roles()
        ]

    def _may_attempt(self) -> bool:
        """Whether the operation at the head of the line could be served if there was something."""
        return True


def _restore(kind: type[Any], handle: Handle, travelled: Any, options: Options) -> Any:
    segment = Segment.adopt(handle.segment, None if travelled is None else _travel.land(travelled))
    try:
        return kind(segment, handle.role, options)
    finally:
        segment.drop()
