"""What playing a role is, for readers and the writer alike: legs of operations on loops and in the thread, interrupted.

A leg is a run of operations on one event loop, or in the bare thread; the end of the queue stays the same, so it moves
from loop to loop. Every operation may be cancelled, timed out, interrupted by a signal or ended by a death, as the dice
say. What is raised is judged: each error must be one that the storm has caused.

Guarantee: whatever is not expected ends the process, with a traceback in its log. Assumption: one Role per thread.
"""

from __future__ import annotations

import abc
import asyncio
import contextlib
import gc
import os
import signal
import sys
import traceback
from collections.abc import Callable, Coroutine, Iterator
from types import FrameType
from typing import Any

import uvloop
from storm_book import OPERATIONS, Book, Page
from storm_chance import Dice, Script
from storm_message import Violation
from storm_post import Fate, Post

import aiospin
from aiospin import _roles

TIMEOUTS = (TimeoutError, asyncio.TimeoutError)  # the same from Python 3.11 on
LONGEST = 5e-3  # seconds until a time-out or a cancel

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.SelectorEventLoop,
    "uvloop": uvloop.new_event_loop,
}
UNEXPLAINED_DEATH = "a death that nobody has ordered"
WAYS = ("asyncio", "uvloop", "asyncio", "uvloop", "thread", "thread")


class Interrupted(BaseException):
    """What a signal's Python function raises, as Ctrl-C would."""


class Ended(Exception):
    """The stream has ended."""


class Dropped(Exception):
    """The writer has dropped this reader."""


class Role(abc.ABC):
    """Plays one role until the stream ends, or until the dice ask for another process."""

    end: Any

    def __init__(self, book: Book, post: Post, role: int) -> None:
        self.book, self.post = book, post
        self.page: Page = book.page(role)
        self.role = role
        self.handle = post.handles[post.roles.index(role)]
        self.script = Script(post.seed, f"role {role}", post.incarnation)
        self.main = post.roles[0] == role
        self.fate = Fate(book, post)
        self.asked = False  # the operation under way was given a time-out
        self.waits: aiospin.WaitSet | None = None
        self._told: dict[tuple[int, int], _roles.Seat] = {}  # by role and pid
        self.interrupts = 0
        self._alarmed = False
        # In the fallback a signal's exception may come between any two lines, as between the cursor and the bells.
        self.alarms = aiospin.backend == "native"

    # what readers and writer differ in

    def play(self) -> None:
        """All of it."""
        while self.tenure(self.script.next()):
            pass
        self.end = None
        gc.collect()

    @abc.abstractmethod
    def tenure(self, dice: Dice) -> bool:
        """From attach to the end of it. False when this process is not needed any more."""

    @abc.abstractmethod
    def in_loop(self, dice: Dice) -> Coroutine[Any, Any, None]:
        """One operation that awaits."""

    @abc.abstractmethod
    def in_thread(self, dice: Dice) -> None:
        """One operation that blocks."""

    @abc.abstractmethod
    def prepare(self, dice: Dice) -> None:
        """What comes before an interruptible operation."""

    @abc.abstractmethod
    def interruptible(self, dice: Dice) -> None:
        """One operation that blocks, in which a signal's exception does no harm that we could not tell from a fault."""

    @abc.abstractmethod
    def interrupted(self) -> None:
        """That happened."""

    @abc.abstractmethod
    def settled(self) -> None:
        """An operation is over, however it ended."""

    @abc.abstractmethod
    def told(self, error: aiospin.AiospinError) -> None:
        """An error that only this kind of role may meet. Raises Violation for any other."""

    @abc.abstractmethod
    def has_enough(self) -> bool:
        """Whether the leg is to end now."""

    # an end's life

    def attach(self, dice: Dice) -> None:
        """A fresh end, which has claimed nothing yet."""
        gc.collect()  # tracebacks may keep leases of the end before
        self._told.clear()
        self.end = aiospin.attach(
            self.handle,
            policy=dice.pick(("eco", "balanced", "latency")),
            on_peer_death=dice.pick(("raise", "raise", "wait")),
            stall_after=25.0,  # just before the conductor gives up
        )

    def leg(self, dice: Dice) -> None:
        """Some operations on one loop, or without."""
        way, operations, in_set = dice.pick(WAYS), 5 + dice.below(60), dice.one_in(4)
        if in_set:
            self.waits = aiospin.WaitSet([self.end])
        try:
            if way == "thread":
                for _ in range(operations):
                    if self.has_enough():
                        break
                    self._one_in_thread(self.script.next())
            else:
                self._leg_in_loop(LOOPS[way], operations, abandons=dice.one_in(5))
                self.page.count("moves")
        finally:
            waits, self.waits = self.waits, None
            if waits is not None:
                waits.close()

    def timeout(self, dice: Dice, *, needed: bool = False) -> float | None:
        """A time-out, or None if the operation may wait for ever."""
        if not needed and dice.below(3):
            return None
        self.asked = True
        return dice.moment(LONGEST)

    # operations

    @contextlib.contextmanager
    def _judged(self, dice: Dice) -> Iterator[bool]:
        """Around one operation: whether fate may strike in it, and what becomes of its errors."""
        tempted = self.main and self.fate.tempt(dice)
        self.asked = False
        try:
            yield tempted
        except (aiospin.AiospinError, *TIMEOUTS) as error:
            self.judge(error)
        finally:
            if tempted:
                self.fate.relent()
            self.settled()

    def _one_in_thread(self, dice: Dice) -> None:
        self.page[OPERATIONS] += 1
        with self._judged(dice) as tempted:
            try:
                if self.main and self.alarms and not tempted and dice.one_in(10):
                    self.prepare(dice)
                    self._interruptible(dice)
                else:
                    self.in_thread(dice)
            except Interrupted:
                self.interrupts += 1
                self.page.count("interrupts")
                self.interrupted()

    def _interruptible(self, dice: Dice) -> None:
        """An operation, and a signal in the middle of it, just before or just after. Interrupted replaces its error."""
        signal.signal(signal.SIGALRM, self._alarm)
        try:
            self._alarmed = True
            signal.setitimer(signal.ITIMER_REAL, 1e-5 + dice.moment(LONGEST))
            self.interruptible(dice)
        finally:
            self._alarmed = False
            signal.setitimer(signal.ITIMER_REAL, 0)

    def _alarm(self, number: int, frame: FrameType | None) -> None:
        if self._alarmed:
            self._alarmed = False
            raise Interrupted

    def _leg_in_loop(self, make: Callable[[], asyncio.AbstractEventLoop], operations: int, *, abandons: bool) -> None:
        loop = make()
        loop.set_exception_handler(_judge_loop)
        try:
            loop.run_until_complete(self._many_in_loop(operations))
            loop.run_until_complete(loop.shutdown_asyncgens())
            if abandons and not self.holds():
                self._abandon(loop)
        finally:
            loop.close()
        gc.collect()

    def holds(self) -> bool:
        """Whether the role holds bytes that the others may be waiting for."""
        return False

    def _abandon(self, loop: asyncio.AbstractEventLoop) -> None:
        """Close the loop over a wait that is under way."""
        waiting = loop.create_task(self._wait_in_vain())
        for _ in range(3):
            loop.run_until_complete(asyncio.sleep(0))
        self.settled()
        if waiting.done() and not waiting.cancelled():
            error = waiting.exception()
            if isinstance(error, (aiospin.AiospinError, *TIMEOUTS)):
                self.judge(error)
            elif error is not None:
                raise error

    @abc.abstractmethod
    async def _wait_in_vain(self) -> None:
        """Wait, and take nothing."""

    async def _many_in_loop(self, operations: int) -> None:
        for _ in range(operations):
            if self.has_enough():
                break
            await self._one_in_loop(self.script.next())

    async def _one_in_loop(self, dice: Dice) -> None:
        self.page[OPERATIONS] += 1
        loop = asyncio.get_running_loop()
        how, turns, delay = dice.below(10), dice.below(7), dice.moment(LONGEST)
        with self._judged(dice):
            if how < 5:
                await self.in_loop(dice)
                return
            task = loop.create_task(self.in_loop(dice))
            if how < 8:
                for _ in range(turns):
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.wait([task])
            else:
                timer = loop.call_later(delay, task.cancel)
                await asyncio.wait([task])
                timer.cancel()
            if task.cancelled():
                self.page.count("cancels")
            else:
                task.result()

    def judge(self, error: BaseException) -> None:
        if isinstance(error, TIMEOUTS):
            if not self.asked:
                raise Violation("a time-out that nobody has asked for") from error
            self.page.count("time-outs")
        elif isinstance(error, aiospin.PeerDied):
            self._hear_of_death(error)
        elif isinstance(error, aiospin.QueueClosed):
            if self.book.final is None or self.role == 0:
                raise Violation("the stream has not ended") from error
            raise Ended
        else:
            assert isinstance(error, aiospin.AiospinError)
            self.told(error)

    def _hear_of_death(self, error: aiospin.PeerDied) -> None:
        role = 0 if error.rank is None else 1 + error.rank
        if role == self.role or (role == 0) == (self.role == 0):
            raise Violation(f"role {self.role} does not wait for role {role}") from error
        if not self.book.page(role).was_killed(error.pid):
            raise Violation(f"{UNEXPLAINED_DEATH}: pid {error.pid} in role {role}") from error
        if (role, error.pid) in self._told:
            then, now = self._told[role, error.pid], _roles.seat(self.end._segment, role)
            raise Violation(f"the same death, told a second time: {then}, then {now}") from error
        self._told[role, error.pid] = _roles.seat(self.end._segment, role)
        self.page.count("deaths told")
        self.bereaved(error)

    @abc.abstractmethod
    def bereaved(self, error: aiospin.PeerDied) -> None:
        """A peer has died, for sure."""


def _judge_loop(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """What a loop's callbacks raise ends the process; a task that went with its loop is our doing."""
    if context.get("message") == "Task was destroyed but it is pending!":
        return
    error = context.get("exception")
    print(f"in a callback of {loop!r}: {context.get('message')}", file=sys.stderr)
    if isinstance(error, BaseException):
        traceback.print_exception(type(error), error, error.__traceback__)
    sys.stderr.flush()
    os._exit(3)
