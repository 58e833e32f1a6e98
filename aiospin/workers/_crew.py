"""The crew: which worker gets which call, and what happens to calls and ranks when a worker dies.

A call for a rank waits in that rank's berth, any other in the backlog; a worker is given at most `pipeline` calls ahead of
their turn, so what waits is not stuck behind one that is busy, and is not lost with one that dies.

Guarantee: every call that was accepted ends. Runs in one loop; nothing here waits but `start` and `stop`.
"""

from __future__ import annotations

import asyncio
import collections
import itertools
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from aiospin import Full, Queue, QueueClosed, _loop
from aiospin.workers import _body
from aiospin.workers._calls import Call, Sink
from aiospin.workers._envelope import Flag
from aiospin.workers._failure import StartFailed, WorkerDied
from aiospin.workers._link import Link, Making
from aiospin.workers._options import Options

_log = logging.getLogger("aiospin")
_GRACE: Final = 5.0  # seconds for a worker to end by itself, and again after SIGTERM


@dataclass(frozen=True)
class Restart:
    """When a worker that died gets a successor: after `first` seconds, each time `factor` times as long, at most `most`.

    An answered call counts as success, and the next death begins anew. After `attempts` deaths or failed starts in a row
    the rank is given up, and calls to it fail; None never gives up.
    """

    first: float = 0.1
    factor: float = 2.0
    most: float = 30.0
    attempts: int | None = 5

    def delay(self, failures: int) -> float:
        """Seconds before the next start, after that many failures in a row."""
        return min(self.most, self.first * self.factor ** (failures - 1))


class _Berth:
    """A rank, whoever fills it."""

    def __init__(self, rank: int, making: Making) -> None:
        self.rank = rank
        self.making = making
        self.link: Link | None = None
        self.own: collections.deque[Call] = collections.deque()  # calls for this rank that wait
        self.failures = 0
        self.given_up: BaseException | None = None
        self.restarting: asyncio.Task[None] | None = None
        self.first_up = _loop.here().future()

    @property
    def up(self) -> Link | None:
        """Its worker, if that can be given calls."""
        return self.link if self.link is not None and self.link.up else None


class Crew:
    """All berths of a group."""

    def __init__(
        self, makings: Sequence[Making], body: _body.Body, restart: Restart | None, max_deliveries: int, pipeline: int
    ) -> None:
        self.size = len(makings)
        self._makings = makings
        self._body = body
        self._restart = restart
        self._max_deliveries = max_deliveries
        self._pipeline = pipeline
        self._berths: list[_Berth] = []
        self._backlog: collections.deque[Call] = collections.deque()
        self._numbers = itertools.count(1)
        self._outstanding = 0
        self._idle: asyncio.Future[Any] | None = None
        self._state = "new"
        self._publishing = asyncio.Lock()

    @property
    def pids(self) -> tuple[int, ...]:
        """The process of each rank; 0 while there is none."""
        return tuple(0 if berth.link is None else berth.link.pid for berth in self._berths)

    # life

    async def start(self, timeout: float | None) -> None:
        """Start every worker and wait until each is ready. StartFailed, TimeoutError; nothing is left then."""
        if self._state != "new":
            raise RuntimeError("a group can be entered once")
        self._state = "up"
        making = self._makings[0]
        self._station = _loop.here()
        self._broadcasts: Queue[Any] = Queue(readers=self.size, capacity=making.capacity, policy=making.policy)
        self._broadcaster = self._broadcasts.writer()
        self._broadcaster.__enter__()
        self._berths = [_Berth(rank, making) for rank, making in enumerate(self._makings)]
        try:
            await asyncio.gather(*(self._fill(berth) for berth in self._berths))
            ready = asyncio.gather(*(berth.first_up for berth in self._berths))
            try:
                await asyncio.wait_for(ready, timeout)
            except asyncio.TimeoutError:
                late = [berth.rank for berth in self._berths if berth.up is None]
                raise TimeoutError(f"workers {late} were not ready within {timeout!r} s") from None
        except BaseException:
            await self.stop(0.0)
            raise

    async def _fill(self, berth: _Berth) -> None:
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

    async def stop(self, drain: float | None) -> None:
        """Let calls end for up to `drain` seconds, then the workers. Idempotent."""
        if self._state != "up":
            return
        self._state = "stopping"
        try:
            for berth in self._berths:
                if berth.restarting is not None:
                    berth.restarting.cancel()
                if berth.link is None:
                    self._give_up_berth(berth, QueueClosed("the group is closed"))
            if self._outstanding and drain != 0.0:
                self._idle = self._station.future()
                await asyncio.wait([self._idle], timeout=drain)
            self._end_everything(QueueClosed("the group is closed"))
            for last_resort in (Link.close_requests, Link.terminate, Link.kill):
                links = [berth.link for berth in self._berths if berth.link is not None]
                for link in links:
                    last_resort(link)
                if links:
                    await asyncio.wait([link.gone for link in links], timeout=_GRACE)
        finally:
            self._state = "closed"
            for berth in self._berths:
                link, berth.link = berth.link, None
                if link is not None:
                    link.kill()
                    link.close()
            self._broadcaster.close()
            self._broadcasts.close()

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
        """Accept a call for one worker. QueueClosed, and what encoding raises; what comes later goes to the sink."""
        if rank != "any" and (isinstance(rank, bool) or not isinstance(rank, int) or not 0 <= rank < self.size):
            raise ValueError(f"rank must be 'any' or from 0 to {self.size - 1}, got {rank!r}")
        self._require_up()
        body, buffers = self._body.encode_call(args, kwargs)
        number = next(self._numbers)
        call = self._accept(number, name, body, buffers, sink, options, None if rank == "any" else rank, flags)
        berth = self._least_loaded() if call.rank is None else self._berths[call.rank]
        if berth is None or berth.given_up is not None:
            self._fail(call, self._why_nobody() if berth is None or berth.given_up is None else berth.given_up)
        elif call.rank is None and not self._backlog and self._has_room(berth):
            self._hand_over(berth, call)
        else:
            (self._backlog if call.rank is None else berth.own).append(call)
            self._feed(berth)
        return call

    async def ask_all(
        self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any], sinks: Sequence[Sink], options: Options
    ) -> list[Call]:
        """Accept a call for every worker, published once where that is possible."""
        self._require_up()
        body, buffers = self._body.encode_call(args, kwargs)
        number = next(self._numbers)
        calls = [self._accept(number, name, body, buffers, sink, options, rank, 0) for rank, sink in enumerate(sinks)]
        try:
            async with self._publishing:  # announced in the order in which they are published
                everybody = [berth.up for berth in self._berths]
                if all(link is not None for link in everybody) and not any(berth.own for berth in self._berths):
                    await self._publish(calls[0].pieces())
                    for berth, call in zip(self._berths, calls, strict=True):
                        if berth.up is not None and berth.up is everybody[berth.rank]:
                            call.link = berth.up
                            berth.up.announce(call)
                        else:
                            self._wait_for(berth, call)  # it died meanwhile
                else:
                    for berth, call in zip(self._berths, calls, strict=True):
                        self._wait_for(berth, call)
        except BaseException:
            self.give_up(*calls)
            raise
        return calls

    async def _publish(self, pieces: Sequence[Any]) -> None:
        try:
            self._broadcaster.put_nowait(*pieces)
        except Full:
            await self._broadcaster.aput(*pieces)

    def _wait_for(self, berth: _Berth, call: Call) -> None:
        if berth.given_up is not None:
            self._fail(call, berth.given_up)
        else:
            berth.own.append(call)
            self._feed(berth)

    def _accept(
        self,
        number: int,
        name: str,
        body: bytes,
        buffers: Sequence[Any],
        sink: Sink,
        options: Options,
        rank: int | None,
        flags: int,
    ) -> Call:
        call = Call(number, name, body, buffers, sink, flags, 0, options.delivery, rank)
        call.kill_after = options.kill_after
        if options.timeout is not None:
            call.deadline_ns = time.monotonic_ns() + int(options.timeout * 1e9)
            call.on_end.append(self._station.call_later(options.timeout, self._expire, call, options.timeout).cancel)
        self._outstanding += 1
        call.on_end.append(self._count_down)
        return call

    def give_up(self, *calls: Call) -> None:
        """Nobody waits for these any more. Does nothing for those that have ended."""
        for call in calls:
            if call.given_up or call.ended:
                continue
            call.given_up = True
            call.sink.give_up()
            having: Link | None = call.link
            if having is None:
                call.end()  # it is passed over when its turn comes
                continue
            having.cancel(call)
            if call.kill_after is not None:
                call.on_end.append(self._station.call_later(call.kill_after, having.kill).cancel)

    def _expire(self, call: Call, timeout: float) -> None:
        if call.ended or call.sink.done:
            return
        where = "" if call.rank is None else f" of worker {call.rank}"
        call.sink.fail(TimeoutError(f"{call.name}(){where} did not end within {timeout!r} s"))
        self.give_up(call)

    def _count_down(self) -> None:
        self._outstanding -= 1
        if self._outstanding == 0 and self._idle is not None:
            _loop.wake(self._idle)

    def _fail(self, call: Call, error: BaseException) -> None:
        call.sink.fail(error)
        call.end()

    # who gets what

    def _least_loaded(self) -> _Berth | None:
        there = [berth for berth in self._berths if berth.given_up is None]
        ups = [berth for berth in there if berth.up is not None]
        return min(ups or there, key=lambda berth: len(berth.link.calls) if berth.link else 0, default=None)

    def _has_room(self, berth: _Berth) -> bool:
        return berth.up is not None and not berth.own and len(berth.up.calls) < self._pipeline

    def _feed(self, berth: _Berth) -> None:
        """Give a worker what waits for it, and then what waits for anybody."""
        while berth.up is not None and len(berth.up.calls) < self._pipeline:
            call = _next(berth.own) or _next(self._backlog)
            if call is None:
                return
            self._hand_over(berth, call)

    def _hand_over(self, berth: _Berth, call: Call) -> None:
        assert berth.link is not None
        call.link = berth.link
        berth.link.ask(call)

    # what links tell

    def on_up(self, link: Link) -> None:
        """A worker has constructed its object."""
        berth = self._berths[link.rank]
        _loop.wake(berth.first_up)
        self._feed(berth)

    def on_room(self, link: Link) -> None:
        """A worker has ended a call."""
        berth = self._berths[link.rank]
        berth.failures = 0
        self._feed(berth)

    def on_lost(self, link: Link, reason: str, failure: BaseException | None) -> None:
        """A worker's process has ended."""
        berth = self._berths[link.rank]
        pid, was_up, started = link.pid, link.was_up, set(link.started_calls())
        again = [call for call in link.calls.values() if self._survives(call, call in started, link, reason)]
        berth.link = None
        link.close()
        if self._state != "up":
            for call in again:
                self._fail(call, QueueClosed("the group is closed"))
            return
        self._broadcaster.drop_reader(link.rank)
        for call in reversed(again):
            call.link = None
            (self._backlog if call.rank is None else berth.own).appendleft(call)
        if was_up:
            _log.warning(f"worker {link.rank} (pid {pid}) {reason}")
            error: BaseException = WorkerDied(link.rank, pid, reason, "nothing")
        else:
            error = StartFailed(link.rank, f"it {reason}" if failure is None else f"{failure!r}")
            error.__cause__ = failure
        if not berth.first_up.done():
            berth.first_up.set_exception(error)
            return
        berth.failures += 1
        if self._restart is None or (self._restart.attempts is not None and berth.failures > self._restart.attempts):
            _log.warning(f"worker {link.rank} is given up: {error}")
            self._give_up_berth(berth, error)
            return
        berth.restarting = asyncio.ensure_future(self._refill(berth, self._restart.delay(berth.failures)))
        for other in self._berths:
            self._feed(other)  # what any worker may do need not wait

    def _survives(self, call: Call, started: bool, link: Link, reason: str) -> bool:
        """Whether a successor should get it. If not, it has ended."""
        if call.given_up or call.sink.done:
            call.end()
            return False
        if not started:
            call.deliveries -= 1
            return True
        repeatable = call.delivery == "at_least_once" and not call.flags & Flag.STREAM
        if repeatable and call.deliveries < self._max_deliveries:
            return True
        self._fail(call, WorkerDied(link.rank, link.pid, reason, call.name))
        return False

    async def _refill(self, berth: _Berth, delay: float) -> None:
        await asyncio.sleep(delay)
        berth.restarting = None
        try:
            await self._fill(berth)
        except StartFailed as error:
            self._give_up_berth(berth, error)

    def _give_up_berth(self, berth: _Berth, error: BaseException) -> None:
        berth.given_up = error
        while (call := _next(berth.own)) is not None:
            self._fail(call, error)
        if all(other.given_up is not None for other in self._berths):
            while (call := _next(self._backlog)) is not None:
                self._fail(call, error)

    def _end_everything(self, error: BaseException) -> None:
        for berth in self._berths:
            if berth.link is not None:
                for call in list(berth.link.calls.values()):
                    if not call.given_up:
                        call.sink.fail(error)
                        self.give_up(call)
            self._give_up_berth(berth, error)

    def _why_nobody(self) -> BaseException:
        found = [berth.given_up for berth in self._berths if berth.given_up is not None]
        return found[0] if found else QueueClosed("the group has no worker")

    def _require_up(self) -> None:
        if self._state != "up":
            raise QueueClosed(f"the group is {'not entered yet' if self._state == 'new' else 'closed'}")


def _next(waiting: collections.deque[Call]) -> Call | None:
    """The oldest that has not been given up."""
    while waiting:
        call = waiting.popleft()
        if not call.ended:
            return call
    return None
