"""What readers and writers have in common: opening, ending, waiting, and the hooks that the layer above fills in.

Guarantee: an endpoint is claimed at its first use, ends once, and after that says why. One waiter at a time.
Assumption: the subclass implements the hooks; `_open` is called with the role's lock held, by `_claim`.
"""

from __future__ import annotations

import abc
import asyncio
import weakref
from collections.abc import Callable
from typing import Any, Protocol

from aiospin._errors import ForkedUse, PeerDied, QueueClosed
from aiospin._fallback import bell, forks
from aiospin._fallback.mapping import Mapping
from aiospin._fallback.operation import Operation
from aiospin._fallback.ring import NOT_READY
from aiospin._fallback.waiting import park


class Core(Protocol):
    """What an endpoint asks of its reader or writer core."""

    live: bool

    def detach(self) -> None: ...
    def forget(self) -> None: ...
    def counters(self) -> dict[str, int]: ...


class Attempt:
    """One try at a call: a result, NOT_READY, or an error. `holds` while it is in the middle of a message."""

    __slots__ = ("_try", "holds", "parks", "what")

    def __init__(self, attempt: Callable[[], Any], what: str) -> None:
        self._try = attempt
        self.what = what
        self.holds = False
        self.parks = False  # a thread sleeps between the attempts, and keeps the writer's turn meanwhile

    def __call__(self) -> Any:
        return self._try()

    def finish(self) -> None:
        """The call is over, however it ended."""


class Endpoint(abc.ABC):
    """The state around a core. Counters count calls: satisfied at once, parked."""

    _opened: bool
    _mapping: Mapping | None
    _bell: int
    _ended: BaseException | None
    _shut_down: bool
    _failure: BaseException | None
    _failures_after: list[BaseException]  # raised by the attempts after that one, oldest first
    _waiter: dict[str, object]
    _queued: int  # operations that are suspended
    _passing: int  # operations that let the loop turn before their first attempt
    _at_once: int
    _parks: int
    _home: Any = None  # the loop that has the bell; this backend does without
    _in_vain: bool = False
    _parked_operation: Operation | None = None
    _parked_ns = 0

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        self = super().__new__(cls)
        self._opened = False
        self._mapping = None
        self._bell = -1
        self._ended = self._failure = None
        self._failures_after = []
        self._shut_down = False
        self._waiter = {}
        self._queued = self._passing = 0
        self._at_once = self._parks = 0
        return self

    # opening and ending

    def _opened_on(self, mapping: Mapping, own_bell: int) -> None:
        self._mapping = mapping
        self._bell = own_bell
        self._ended = self._failure = None
        self._failures_after = []
        self._shut_down = False
        self._opened = True
        forks.watch(self)

    def _require(self) -> None:
        """Be open, claiming the role if this is the first use; or raise why that cannot be."""
        if self._opened:
            return
        error = self._over()
        if error is not None:
            raise error
        self._claim()
        if not self._opened:
            raise QueueClosed(f"{self.role_name} is closed")

    def _over(self) -> BaseException | None:
        """Why the endpoint has ended; None while it has not."""
        if not self._shut_down:
            return None
        if self._ended is None:
            return QueueClosed(f"{self.role_name} is closed")
        return self._ended.with_traceback(None)

    def _shut(self, error: BaseException | None) -> None:
        """Drop the hot state; later use raises `error`, or QueueClosed. Idempotent. Closes no descriptor."""
        if not self._shut_down:
            self._shut_down = True
            self._ended = error
        was_open, own_bell = self._opened, self._bell
        self._opened = False
        self._bell = -1
        self._mapping = None
        self._drop_core()
        if was_open and self._waiter:
            bell.ring(own_bell)  # a thread may sleep on it

    def _after_fork(self) -> None:
        self._waiter.clear()
        self._queued = self._passing = 0
        self._forget_core()
        if self._opened:
            self._shut(ForkedUse(f"the {self.role_name} was claimed before a fork and belongs to the parent"))

    def _fail(self, error: BaseException) -> None:
        """Raised once, by the next attempt that finds nothing ready."""
        # Each death is told. Anything else is met again by whoever uses the end, and need not pile up.
        if self._failure is not None and isinstance(error, PeerDied):
            self._failures_after.append(error)
        else:
            self._failure = error

    def _take_failure(self) -> None:
        error = self._failure
        self._failure = self._failures_after.pop(0) if self._failures_after else None
        if error is not None:
            raise error

    # waiting

    def _wait(self, attempt: Attempt, timeout: float | None, begun: float | None = None) -> Any:
        """Attempt, and wait in this thread until it succeeds; time counts from `begun`, or from the first attempt."""
        try:
            self._require()
            self._line_up(attempt)
            try:
                result = attempt()
                if result is not NOT_READY:
                    self._at_once += 1
                    return result
                if timeout == 0:
                    raise self._late(timeout)
                return park(self, attempt, timeout, begun)
            finally:
                self._step_out(attempt)
        finally:
            attempt.finish()

    def fileno(self) -> int:
        """The bell's descriptor: readable when there may be something to do. Use it with `arm`."""
        self._require()
        return self._bell

    def arm(self) -> bool:
        """Before sleeping on `fileno()`: True says sleep; False says there is something to take, or an error, now."""
        self._require()
        self._drain()
        return not (self._ready() or self._announce())

    def _forget_peer(self) -> None:
        """Peers' descriptors may be closed from here on. This backend asks for them before each sleep."""
        return

    def _drain(self) -> None:
        """Empty the bell."""
        if self._opened:
            bell.drain(self._bell)

    def _horizon_us(self) -> float:
        """How long to watch before parking: not at all."""
        return 0.0

    def _bell_callback(self) -> Callable[[], None]:
        """What a loop calls when the bell is readable. It refers weakly to this end."""
        reference = weakref.ref(self)

        def rang() -> None:
            end = reference()
            if end is not None:
                end._drain()
                end._kick()

        return rang

    def _wake_parked(self) -> bool:
        """Nothing parks here without the layer above."""
        return False

    def _counters(self) -> dict[str, int]:
        """Calls satisfied at once, parks, rings; messages; leases and views held now."""
        counted = {"ready": self._at_once, "inline": 0, "monitor": 0, "parks": self._parks}
        return {**counted, "rings": 0, "messages": 0, "leases": 0, "views": 0, **self._core_counters()}

    # what reader and writer differ in

    @property
    @abc.abstractmethod
    def role_name(self) -> str:
        """What messages call this end."""

    @abc.abstractmethod
    def _ready(self) -> bool:
        """An attempt would return or raise now."""

    @abc.abstractmethod
    def _announce(self) -> bool:
        """Say that this end is about to sleep, then look again: True if it need not."""

    @abc.abstractmethod
    def _drop_core(self) -> None:
        """Let go of the core, which keeps the role until nothing of it is lent out."""

    @abc.abstractmethod
    def _forget_core(self) -> None:
        """Let go of the core and the role at once."""

    @abc.abstractmethod
    def _core_counters(self) -> dict[str, int]:
        """What the core counted."""

    @abc.abstractmethod
    def _late(self, timeout: float | None) -> TimeoutError:
        """The error for a wait whose time is over."""

    @abc.abstractmethod
    def _line_up(self, waiter: object) -> None:
        """Be the one who waits, or raise that another is."""

    @abc.abstractmethod
    def _step_out(self, waiter: object) -> None:
        """Wait no longer."""

    @abc.abstractmethod
    def _must_wait(self, attempt: Attempt) -> bool:
        """Others come first: not even a first attempt is allowed."""

    # hooks of the layer above

    @abc.abstractmethod
    def _claim(self) -> None:
        """Take the role and call `_open`; or raise RoleTaken, ForkedUse, ..."""

    @abc.abstractmethod
    def _suspend(self, op: Operation, remaining: float | None) -> asyncio.Future[bool]:
        """A future that becomes True when `op` should attempt again, False when `remaining` seconds have passed."""

    @abc.abstractmethod
    def _leave(self, op: Operation) -> None:
        """`op`, which was suspended at least once, has ended."""

    @abc.abstractmethod
    def _blocking(self) -> None:
        """This thread is about to sleep, and its event loop is running."""

    @abc.abstractmethod
    def _peer_fds(self) -> list[int]:
        """What else to wake for: the peers' pidfds."""

    @abc.abstractmethod
    def _recheck(self, waited: float) -> None:
        """One of those fired, or another second has passed; `waited` seconds in all. May call `_fail`."""

    @abc.abstractmethod
    def _kick(self) -> None:
        """The turn is free again while operations are queued."""
