"""The writer in a storm: attaches, sends in every way that there is, aborts, drops dead readers, leaves, is taken over.

Guarantee: after each operation the number of messages published is what its outcome allows, and the book says so.
Assumption: see storm_role.py.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any

from storm_book import DROP_BEGUN, DROP_DONE, ENDED, EPOCH, FINAL, FINISHED, SENDING, SENT, WANTS_SUCCESSOR, Book
from storm_chance import Dice, Script
from storm_message import LEAST, Violation, write
from storm_post import Post
from storm_role import TIMEOUTS, Role

import aiospin

_LULL = 1.2  # seconds in which nobody sends: longer than sleepers go without being looked at
_pause = threading.Event()


class OnPurpose(Exception):
    """Raised in the body of a claim."""


class WriterRole(Role):
    """Plays the writer."""

    def __init__(self, book: Book, post: Post, role: int) -> None:
        super().__init__(book, post, role)
        self._nonces = 0
        self._grief = Script(post.seed, "deaths told", post.incarnation)

    def tenure(self, dice: Dice) -> bool:
        self.attach(dice)
        self.end.__enter__()
        begun = self.end._sequence
        if not self.page[SENT] <= begun <= self.page[SENT] + self.page[SENDING]:
            sent, sending = self.page[SENT], self.page[SENDING]
            raise Violation(f"the writer takes over at {begun}; published were {sent}, or up to {sending} more")
        self.page[SENT] = begun
        self.page[SENDING] = 0
        self.page[EPOCH] += 1
        self._nonces = self.page[EPOCH] << 32
        while not self.book.stopping:
            self.leg(self.script.next())
            dice = self.script.next()
            if not self.book.stopping and dice.one_in(5):
                self.end.detach()
                self.page.count("detaches")
                if len(self.post.roles) == 1 and dice.one_in(2):
                    self.page[ENDED] = WANTS_SUCCESSOR
                    return False
                return True
        self.book.words[FINAL] = 1 + self.end._sequence
        self.end.close()
        self.page[ENDED] = FINISHED
        return False

    # what a message is

    def _message(self, dice: Dice, *, ahead: int = 0, slack: int = 0) -> bytes:
        self._nonces += 1
        return write(self._nonces, self.end._sequence + ahead, slack, self._size(dice))

    def _size(self, dice: Dice) -> int:
        throw, capacity = dice.below(200), self.post.capacity
        if throw < 120:
            most = 200
        elif throw < 180:
            most = 4000
        elif throw < 194:
            most = capacity // 4
        elif throw < 199:
            most = capacity - 64  # the largest slot
        else:
            self.page.count("large")
            return capacity + dice.below(capacity)
        return LEAST + dice.below(most - LEAST + 1)

    # keeping count

    def _sending(self, many: int) -> int:
        self.page[SENDING] = many
        return int(self.end._sequence)

    def settled(self) -> None:
        """An operation is over: what it published shows in the sequence, and must be no more than it was to."""
        published = self.end._sequence - self.page[SENT]
        if not 0 <= published <= self.page[SENDING]:
            raise Violation(f"{published} messages were published, and not up to {self.page[SENDING]}")
        self.page[SENT] = self.end._sequence
        self.page[SENDING] = 0
        self.page.count("messages", published)

    def _must_have_sent(self, before: int, many: int) -> None:
        if self.end._sequence != before + many:
            raise Violation(f"{many} messages should be published, and {self.end._sequence - before} were")

    # in an event loop

    def in_loop(self, dice: Dice) -> Coroutine[Any, Any, None]:
        if dice.one_in(500):
            return self._alull(dice)
        if self.waits is not None and dice.one_in(3):
            return self._awaits(dice)
        ways = (self._aput, self._aput, self._aclaim, self._aclaim, self._aput_many, self._acrowd, self._anow)
        return dice.pick(ways)(dice)

    async def _wait_in_vain(self) -> None:
        (await self.end.acquire_write(self.post.capacity - 64)).abort()

    async def _alull(self, dice: Dice) -> None:
        await asyncio.sleep(_LULL)

    async def _aput(self, dice: Dice) -> None:
        message, before = self._message(dice), self._sending(1)
        try:
            if dice.one_in(4):
                self.asked = True
                await asyncio.wait_for(self.end.aput(message), dice.moment(5e-3))
            else:
                cut = dice.below(len(message))
                await self.end.aput(message[:cut], memoryview(message)[cut:], timeout=self.timeout(dice))
        except BaseException:
            self._must_have_sent(before, 0)
            raise
        self._must_have_sent(before, 1)

    async def _aput_many(self, dice: Dice) -> None:
        many = 1 + dice.below(12)
        messages, before = [self._message(dice, ahead=i) for i in range(many)], self._sending(many)
        await self.end.aput_many(messages, timeout=self.timeout(dice))
        self._must_have_sent(before, many)

    async def _aclaim(self, dice: Dice) -> None:
        message, before = self._message(dice), self._sending(1)
        spare, aborts = dice.pick((0, 0, 1, 100, 3000)), dice.below(8)
        try:
            async with self.end.acquire_write(len(message) + spare, timeout=self.timeout(dice)) as slot:
                slot.data[: len(message)] = message
                self.fate.body()
                for _ in range(dice.below(3)):
                    await asyncio.sleep(0)  # a cancel in here is an exception in the body
                self._end_claim(slot, len(message), aborts)
        except OnPurpose:
            self._must_have_sent(before, 0)
        except BaseException:
            self._must_have_sent(before, 0)
            raise
        else:
            self._must_have_sent(before, 0 if aborts == 0 else 1)

    async def _acrowd(self, dice: Dice) -> None:
        """Several tasks at once, some of them cancelled: served in the order of their calls."""
        many, before = 2 + dice.below(4), self._sending(6)
        loop = asyncio.get_running_loop()
        messages = [self._message(dice, ahead=i, slack=i) for i in range(many)]
        patience = [None if dice.below(3) else dice.moment(5e-3) for _ in messages]
        tasks = [
            loop.create_task(_await(self.end.aput(message, timeout=timeout)))
            for message, timeout in zip(messages, patience, strict=True)
        ]
        doomed, turns = [task for task in tasks if dice.one_in(3)], dice.below(5)
        try:
            for _ in range(turns):
                await asyncio.sleep(0)
            for task in doomed:
                task.cancel()
            await asyncio.wait(tasks)
        finally:
            for task in tasks:
                task.cancel()
            while not all(task.done() for task in tasks):
                await asyncio.sleep(0)
            errors = [None if task.cancelled() else task.exception() for task in tasks]
        sent = 0
        for task, error in zip(tasks, errors, strict=True):
            if task.cancelled():
                if task not in doomed:
                    raise Violation("a put was cancelled that nobody has cancelled")
                self.page.count("cancels")
            elif error is None:
                sent += 1
            else:
                self.asked = True
                self.judge(error)
        self._must_have_sent(before, sent)

    async def _anow(self, dice: Dice) -> None:
        self._now(dice)

    async def _awaits(self, dice: Dice) -> None:
        assert self.waits is not None
        self.waits.add(self.end, nbytes=dice.below(self.post.capacity - 64))
        await self.waits.wait(timeout=self.timeout(dice))
        self._now(dice)

    # in a thread without a loop

    def in_thread(self, dice: Dice) -> None:
        if dice.one_in(500):
            _pause.wait(_LULL)
            return
        if self.waits is not None and dice.one_in(3):
            self._wait_in_set(dice)
            return
        dice.pick((self._put, self._put, self._claim, self._claim, self._put_many, self._now))(dice)

    def prepare(self, dice: Dice) -> None:
        """Nothing."""

    def interruptible(self, dice: Dice) -> None:
        if dice.one_in(3):
            self._put_many(dice)
        else:
            self._put(dice)

    def interrupted(self) -> None:
        """What it published shows in the sequence."""

    def _put(self, dice: Dice) -> None:
        message, before = self._message(dice), self._sending(1)
        try:
            self.end.put(message, timeout=self.timeout(dice))
        except (aiospin.AiospinError, *TIMEOUTS):
            self._must_have_sent(before, 0)
            raise
        self._must_have_sent(before, 1)

    def _put_many(self, dice: Dice) -> None:
        many = 1 + dice.below(40)
        messages, before = [self._message(dice, ahead=i) for i in range(many)], self._sending(many)
        self.end.put_many(messages, timeout=self.timeout(dice))
        self._must_have_sent(before, many)

    def _claim(self, dice: Dice) -> None:
        message, before = self._message(dice), self._sending(1)
        spare, aborts = dice.pick((0, 0, 1, 100, 3000)), dice.below(8)
        try:
            with self.end.acquire_write(len(message) + spare, timeout=self.timeout(dice)) as slot:
                slot.data[: len(message)] = message
                self.fate.body()
                self._end_claim(slot, len(message), aborts)
        except OnPurpose:
            self._must_have_sent(before, 0)
        except (aiospin.AiospinError, *TIMEOUTS):
            self._must_have_sent(before, 0)
            raise
        else:
            self._must_have_sent(before, 0 if aborts == 0 else 1)

    def _wait_in_set(self, dice: Dice) -> None:
        assert self.waits is not None
        self.waits.add(self.end, nbytes=dice.below(self.post.capacity - 64))
        self.waits.wait_sync(timeout=self.timeout(dice))
        self._now(dice)

    # without waiting

    def _now(self, dice: Dice) -> None:
        how = dice.below(4)
        message, before = self._message(dice), self._sending(1)
        if len(message) > self.post.capacity - 64:
            return
        if how:
            try:
                self.end.put_nowait(message)
            except aiospin.Full:
                self.page.count("refusals")
                self._must_have_sent(before, 0)
            else:
                self._must_have_sent(before, 1)
            return
        slot = self.end.try_acquire_write(len(message))
        if slot is not None:
            slot.data[:] = message
            del slot  # a claim that is forgotten is an abort
            self.page.count("aborts")
        self._must_have_sent(before, 0)

    def _end_claim(self, slot: Any, size: int, aborts: int) -> None:
        if aborts == 0:
            slot.abort()
        elif aborts == 1:
            self.page.count("aborts")
            raise OnPurpose
        else:
            slot.truncate(size)
        if aborts == 0:
            self.page.count("aborts")

    # peers

    def has_enough(self) -> bool:
        return self.book.stopping

    def told(self, error: aiospin.AiospinError) -> None:
        raise Violation("an error that nothing has caused") from error

    def bereaved(self, error: aiospin.PeerDied) -> None:
        """Drop one in three of the dead, unless a successor was faster."""
        rank = error.rank
        assert rank is not None
        if self.book.stopping or not self._grief.next().one_in(3):
            return
        self.page[DROP_BEGUN + rank] += 1
        try:
            self.end.drop_reader(rank)
        except ValueError:
            self.page[DROP_BEGUN + rank] -= 1
        else:
            self.page[DROP_DONE + rank] += 1
            self.page.count("drops")


async def _await(operation: Any) -> None:
    await operation
