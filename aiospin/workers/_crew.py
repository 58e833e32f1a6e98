"""The crew: which worker gets which call, and what happens to calls and ranks when a worker dies.

A call for a rank waits in that rank's berth, any other in the backlog; a worker is given only a few calls ahead of
their turn, so what waits is not stuck behind one that is busy, and is not lost with one that dies.

Guarantee: every call that was accepted ends. Runs in one loop; nothing here waits but `start`, `restart` and `stop`.
"""

from __future__ import annotations

import asyncio
import collections
import itertools
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from aiospin import ForkedUse, Full, QueueClosed, _loop
from aiospin.workers import _body
from aiospin.workers._berth import Berth, next_of
from aiospin.workers._broadcast import Broadcasts
from aiospin.workers._calls import Call, Sink
from aiospin.workers._envelope import Flag
from aiospin.workers._failure import StartFailed, WorkerDied, copy_of
from aiospin.workers._link import Link, Making
from aiospin.workers._options import Options
from aiospin.workers._restart import Restart
from aiospin.workers._survey import GroupStatistics, WorkerStatistics

_log = logging.getLogger("aiospin")
_GRACE: Final = 5.0  # seconds for objects to close, at least
_FOR_EVER: Final = 1e9  # seconds; nothing that takes longer needs a timer


@dataclass(frozen=True)
class Rules:
    """What a group was told about calls and deaths. Checked by the group."""

    restart: Restart | None
    max_deliveries: int
    max_pending: int | None


class Crew:
    """All berths of a group."""

    def __init__(self, makings: Sequence[Making], body: _body.Body, rules: Rules) -> None:
        self.size = len(makings)
        self._makings = makings
        self._body = body
        self._rules = rules
        self._berths: list[Berth] = []
        self._backlog: collections.deque[Call] = collections.deque()
        self._numbers = itertools.count(1)
        self._outstanding = 0
        self._wanted = 0  # of these, calls that somebody waits for
        self._idle: asyncio.Future[bool] | None = None
        self._stopped: asyncio.Future[bool] | None = None
        self._state: Literal["new", "up", "stopping", "closed"] = "new"

    @property
    def pids(self) -> tuple[int, ...]:
        """The process of each rank; 0 while there is none."""
        return tuple(0 if berth.link is None else berth.link.pid for berth in self._berths) or (0,) * self.size

    def statistics(self) -> GroupStatistics:
        """How each rank stands, and what waits."""
        return GroupStatistics(
            workers=tuple(
                WorkerStatistics(
                    rank=berth.rank,
                    pid=0 if berth.link is None else berth.link.pid,
                    state=self._state_of(berth),
                    calls=0 if berth.link is None else len(berth.link.calls),
                    waiting=sum(not call.ended for call in berth.own),
                    starts=berth.starts,
                )
                for berth in self._berths
            ),
            pending=self._outstanding,
            waiting=sum(not call.ended for call in self._backlog),
        )

    def _state_of(self, berth: Berth) -> Literal["up", "starting", "leaving", "down", "given up"]:
        if berth.given_up is not None:
            return "given up"
        if berth.link is None:
            return "down"
        if berth.up is not None:
            return "up"
        return "leaving" if berth.link.was_up else "starting"

    def future(self) -> asyncio.Future[Any]:
        """A pending answer. RuntimeError in any other event loop than the one in which the group was started."""
        self._require_up()
        if _loop.here() is not self._station:
            raise RuntimeError("a group belongs to the event loop in which it was started, and this is another one")
        return self._station.future()

    # life

    async def start(self, timeout: float | None) -> None:
        """Start every worker and wait until each is ready. StartFailed, TimeoutError; nothing is left then."""
        if self._state != "new":
            raise RuntimeError("a group can be entered once")
        self._state = "up"
        making = self._makings[0]
        self._station = _loop.here()
        self._broadcasts = Broadcasts(self.size, making.capacity, making.policy, self)
        self._berths = [Berth(rank, making) for rank, making in enumerate(self._makings)]
        try:
            outcomes = await asyncio.gather(*(self._fill(berth) for berth in self._berths), return_exceptions=True)
            for outcome in outcomes:
                if outcome is not None:
                    raise outcome
            ready = asyncio.gather(*(berth.coming for berth in self._berths))
            try:
                await asyncio.wait_for(ready, timeout)
            except asyncio.TimeoutError:
                late = [str(berth.rank) for berth in self._berths if berth.up is None]
                raise TimeoutError(f"not ready within {timeout!r} s: worker {', '.join(late)}") from None
        except BaseException:
            await self.stop(0.0)
            raise

    async def _fill(self, berth: Berth) -> None:
        berth.starts += 1
        link = berth.link = Link(berth.rank, berth.making, self._broadcasts.reader(berth.rank), self._body, self)
        try:
            await link.start()
        except BaseException as error:
            berth.link = None
            link.kill()
            link.close()
            if isinstance(error, OSError):
                raise StartFailed(berth.rank, f"its process could not be made: {error}") from error
            raise

    async def restart(self, rank: int) -> None:
        """Let a worker end what it has, and wait for its successor to be ready. StartFailed when there will be none."""
        self.require_rank(rank)
        self._require_up()
        berth = self._berths[rank]
        if berth.given_up is not None:
            berth.failures = 0
            berth.expect()
            berth.restarting = asyncio.ensure_future(self._refill(berth, 0.0))
        elif berth.link is not None and berth.link.was_up and not berth.planned:
            berth.planned = True
            berth.expect()
            berth.link.retire()
            for other in self._berths:
                self._feed(other)
        await asyncio.shield(berth.coming)

    async def stop(self, drain: float | None) -> None:
        """Let calls end for up to `drain` seconds, then the workers. Idempotent; all calls of it return at the end."""
        if self._state != "new" and self._station.inherited:
            return  # its workers are the parent's
        if self._stopped is not None:
            await asyncio.shield(self._stopped)
        if self._state != "up":
            return
        self._state = "stopping"
        self._stopped = self._station.future()
        closed = QueueClosed("the group was closed before this call had ended")
        try:
            await self._stop(drain, closed)
        finally:
            self._end_everything(closed)
            self._state = "closed"
            for berth in self._berths:
                link, berth.link = berth.link, None
                if link is not None:
                    for call in link.calls.values():
                        self._end(call)
                    link.close()
            self._broadcasts.close()
            _loop.wake(self._stopped)

    async def _stop(self, drain: float | None, closed: QueueClosed) -> None:
        for berth in self._berths:
            if berth.restarting is not None:
                berth.restarting.cancel()
            if berth.link is None:
                self._give_up_berth(berth, closed)
        began = time.monotonic()
        if self._wanted and drain != 0.0:
            self._idle = self._station.future()
            await asyncio.wait([self._idle], timeout=drain)
        left = None if drain is None else max(_GRACE, drain - (time.monotonic() - began))
        self._end_everything(closed)
        await self._end_links((Link.close_requests, Link.kill_unless_up), left)
        await self._end_links((Link.kill,), None)

    async def _end_links(self, ways: Sequence[Callable[[Link], None]], within: float | None) -> None:
        links = [berth.link for berth in self._berths if berth.link is not None]
        for link in links:
            for way in ways:
                way(link)
        if links:
            await asyncio.wait([link.gone for link in links], timeout=within)

    # calls

    def ask(
        self,
        rank: Any,
        name: str,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        sink: Sink,
        options: Options,
        flags: int = 0,
    ) -> Call:
        """Accept a call for one worker. QueueClosed, Full, and what encoding raises; the rest goes to the sink."""
        if rank != "any":
            self.require_rank(rank)
        self._require_up()
        self._require_room(1)
        body, buffers = self._body.encode_call(args, kwargs)
        call = Call(
            next(self._numbers), name, body, buffers, sink, options, rank=None if rank == "any" else rank, flags=flags
        )
        self._accept(call)
        berth = self._least_loaded() if call.rank is None else self._berths[call.rank]
        if berth is None or berth.given_up is not None:
            self._fail(call, self._why_nobody() if berth is None or berth.given_up is None else berth.given_up)
        else:
            (self._backlog if call.rank is None else berth.own).append(call)
            self._feed(berth)
        return call

    def ask_all(
        self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any], sinks: Sequence[Sink], options: Options
    ) -> list[Call]:
        """Accept a call for every worker, published once where that is possible."""
        self._require_up()
        self._require_room(self.size)
        body, buffers = self._body.encode_call(args, kwargs)
        number = next(self._numbers)
        calls = [Call(number, name, body, buffers, sink, options, rank=rank) for rank, sink in enumerate(sinks)]
        for call in calls:
            self._accept(call)
        self._broadcasts.send(calls)
        return calls

    def everybody(self) -> list[Link] | None:
        """The workers of all ranks, if each can take an announcement now: none is missing, nothing waits for one."""
        links = [berth.up for berth in self._berths if berth.up is not None and not berth.own]
        return links if len(links) == self.size else None

    def announce(self, calls: Sequence[Call], links: Sequence[Link]) -> None:
        """These calls were published in the broadcast queue while those workers were there."""
        for berth, call, link in zip(self._berths, calls, links, strict=True):
            if berth.up is link:
                call.link = link
                link.announce(call)
                if call.ended:  # given up while it waited for room; the worker must pass over it all the same
                    link.cancel(call)
            else:
                self._send_own(berth, call)

    def send_each(self, calls: Sequence[Call]) -> None:
        """Send each call to its rank alone."""
        for berth, call in zip(self._berths, calls, strict=True):
            self._send_own(berth, call)

    def _send_own(self, berth: Berth, call: Call) -> None:
        if call.ended:
            return
        if berth.given_up is not None:
            self._fail(call, berth.given_up)
        else:
            berth.own.append(call)
            self._feed(berth)

    def _accept(self, call: Call) -> None:
        timeout = call.options.timeout
        if timeout is not None and timeout < _FOR_EVER:
            call.deadline_ns = time.monotonic_ns() + int(timeout * 1e9)
        call.pieces()  # what cannot be packed is not accepted
        self._outstanding += 1
        self._wanted += 1
        if call.deadline_ns:
            self._alarm(call, call.deadline_ns, self._expire)

    def _alarm(self, call: Call, at_ns: int, ring: Callable[[Call], None]) -> None:
        """Ring at that time if the call has not ended. A timer may go off early, and then is set again."""
        remaining = at_ns - time.monotonic_ns()
        if remaining > 0:
            timer = self._station.call_later(remaining / 1e9, self._alarm, call, at_ns, ring)
            call.timers = [*call.timers[-1:], timer]
        else:
            ring(call)

    def give_up(self, *calls: Call) -> None:
        """Nobody waits for these any more. Does nothing for those that have ended."""
        for call in calls:
            if call.given_up or call.ended:
                continue
            call.given_up = True
            self._want_one_less()
            call.sink.give_up()
            having: Link | None = call.link
            if having is None:
                self._end(call)  # it is passed over when its turn comes
                continue
            having.cancel(call)
            patience = call.options.kill_after
            if patience is not None and patience < _FOR_EVER:
                self._alarm(call, time.monotonic_ns() + int(patience * 1e9), self._kill)

    def _kill(self, call: Call) -> None:
        """A worker is busy with a call that was given up long ago. One that it has not begun will never be run."""
        having: Link | None = call.link
        if having is not None and call in having.started_calls():
            having.kill()

    def _expire(self, call: Call) -> None:
        if call.ended or call.sink.done:
            return
        where = "" if call.rank is None else f" of worker {call.rank}"
        call.sink.fail(TimeoutError(f"{call.name}(){where} did not end within {call.options.timeout!r} s"))
        self.give_up(call)

    def _end(self, call: Call) -> None:
        if call.ended:
            return
        call.end()
        self._outstanding -= 1
        if not call.given_up:
            self._want_one_less()

    def _want_one_less(self) -> None:
        self._wanted -= 1
        if self._wanted == 0 and self._idle is not None:
            _loop.wake(self._idle)

    def _fail(self, call: Call, error: BaseException) -> None:
        call.sink.fail(copy_of(error))  # an exception that is raised twice would tell of both places
        self._end(call)

    # who gets what

    def _least_loaded(self) -> Berth | None:
        """Of those that are up, or else of those that will be."""
        found, least = None, (True, 0)
        for berth in self._berths:
            if berth.given_up is None:
                link = berth.link
                load = (True, 0) if link is None else (not link.up, len(link.calls))
                if found is None or load < least:
                    found, least = berth, load
        return found

    def _feed(self, berth: Berth) -> None:
        """Give a worker what waits for it, and then what waits for anybody."""
        link = berth.link
        while link is not None and link.room:
            call = next_of(berth.own) or next_of(self._backlog)
            if call is None:
                return
            call.link = link
            link.ask(call)

    # what links tell

    def on_up(self, link: Link) -> None:
        """A worker has constructed its object."""
        berth = self._berths[link.rank]
        _loop.wake(berth.coming)
        self._feed(berth)

    def on_done(self, link: Link, call: Call) -> None:
        """A worker has ended a call."""
        self._end(call)
        berth = self._berths[link.rank]
        berth.failures = 0
        if self._backlog or berth.own:
            self._feed(berth)

    def on_lost(self, link: Link, reason: str) -> None:
        """A worker's process has ended."""
        berth = self._berths[link.rank]
        started = set(link.started_calls())
        again = [call for call in link.calls.values() if self._survives(call, call in started, link, reason)]
        berth.link = None
        error: BaseException
        if link.was_up:
            error = WorkerDied(link.rank, link.pid, reason)
        else:
            error = StartFailed(link.rank, link.how_the_start_failed(reason))
            error.__cause__ = link.failure
        link.close()
        if self._state != "up":
            for call in again:
                self._fail(call, QueueClosed("the group is closed"))
            self._give_up_berth(berth, error if not berth.coming.done() else QueueClosed("the group is closed"))
            return
        self._broadcasts.drop(link.rank)
        for call in reversed(again):
            call.link = None
            (self._backlog if call.rank is None else berth.own).appendleft(call)
        if link.left:
            berth.failures = 0  # a SIGTERM that it heeded is none
        self._replace(berth, error)
        for other in self._berths:
            self._feed(other)  # what any worker may do need not wait

    def _replace(self, berth: Berth, error: BaseException) -> None:
        """Start a successor now, later, or not at all."""
        if self._state != "up":
            self._give_up_berth(berth, error)
            return
        if berth.planned:
            berth.planned = False
            delay = 0.0
        else:
            berth.failures += 1
            restart = self._rules.restart
            first = berth.starts == 1 and isinstance(error, StartFailed)
            if first or restart is None or not restart.goes_on(berth.failures):
                if not first:
                    _log.warning(f"{error}; the rank is given up")
                self._give_up_berth(berth, error)
                return
            delay = restart.delay(berth.failures)
            _log.warning(f"{error}; a successor starts in {delay:g} s")
            berth.expect()
        berth.restarting = asyncio.ensure_future(self._refill(berth, delay))

    def _survives(self, call: Call, started: bool, link: Link, reason: str) -> bool:
        """Whether a successor should get it. If not, it has ended."""
        if call.given_up or call.sink.done:
            self._end(call)
            return False
        if not started:
            call.deliveries -= 1
            return True
        repeatable = call.options.delivery == "at_least_once" and not call.flags & Flag.STREAM
        if repeatable and call.deliveries < self._rules.max_deliveries:
            return True
        self._fail(call, WorkerDied(link.rank, link.pid, reason, call.name, call.deliveries))
        return False

    async def _refill(self, berth: Berth, delay: float) -> None:
        await asyncio.sleep(delay)
        berth.restarting = None
        try:
            await self._fill(berth)
        except StartFailed as error:
            self._replace(berth, error)

    def _give_up_berth(self, berth: Berth, error: BaseException) -> None:
        berth.give_up(error)
        while (call := next_of(berth.own)) is not None:
            self._fail(call, error)
        if all(other.given_up is not None for other in self._berths):
            while (call := next_of(self._backlog)) is not None:
                self._fail(call, error)

    def _end_everything(self, error: BaseException) -> None:
        for berth in self._berths:
            if berth.link is not None:
                for call in list(berth.link.calls.values()):
                    if not call.given_up:
                        call.sink.fail(copy_of(error))
                        self.give_up(call)
            self._give_up_berth(berth, error)
        for call in self._broadcasts.take_back():
            self._fail(call, error)

    def _why_nobody(self) -> BaseException:
        found = [berth.given_up for berth in self._berths if berth.given_up is not None]
        return found[0] if found else QueueClosed("the group has no worker")

    def require_rank(self, rank: Any) -> None:
        """Raise TypeError or ValueError for what is no rank."""
        if isinstance(rank, bool) or not isinstance(rank, int):
            raise TypeError(f"rank must be 'any' or a whole number, got {rank!r}")
        if not 0 <= rank < self.size:
            raise ValueError(f"rank must be 'any' or from 0 to {self.size - 1}, got {rank!r}")

    def _require_up(self) -> None:
        if self._state != "new" and self._station.inherited:
            raise ForkedUse("the group belongs to the parent of this process; only there it can be used")
        if self._state != "up":
            raise QueueClosed(f"the group is {'not entered yet' if self._state == 'new' else 'closed'}")

    def _require_room(self, calls: int) -> None:
        most = self._rules.max_pending
        if most is not None and self._outstanding + calls > most:
            raise Full(f"{self._outstanding} calls are pending, and max_pending is {most}")
