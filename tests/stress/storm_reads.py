"""Every way to take messages, awaited and blocking.

Guarantee: what a call may take is noted before it, and what it took right after it, before anything can be cancelled.
Assumption: mixed into ReaderRole.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from storm_chance import Dice
from storm_ledger import Ledger

import aiospin

if TYPE_CHECKING:
    from storm_role import Role
else:
    Role = object


class Reads(Role):
    """The operations."""

    ledger: Ledger

    if TYPE_CHECKING:

        def hold(self, slot: Any, view: Any, place: int, nonce: int) -> None: ...
        def make_room(self, dice: Dice) -> None: ...

    def _patience(self, dice: Dice) -> float | None:
        """Nobody waits for ever who holds what the writer may need."""
        return self.timeout(dice, needed=self.holds())

    # in an event loop

    async def in_loop(self, dice: Dice) -> None:
        self.make_room(dice)
        if dice.one_in(12):
            self._look()
        ways = (self._aget, self._aget, self._awith, self._awith, self._await, self._await, self._aview)
        more = (self._aget_many, self._aiterate, self._aslots, self._aforget, self._await_for, self._awaits)
        await dice.pick((*ways, *more))(dice)

    async def _wait_in_vain(self) -> None:
        self.ledger.expect(1, gives_back=False)
        async with self.end.acquire_read() as slot:
            self._within(slot)
        self._without()

    async def _aget(self, dice: Dice) -> None:
        self.ledger.expect(1, gives_back=True)
        self.ledger.take(await self.end.aget(timeout=self._patience(dice)))

    async def _await_for(self, dice: Dice) -> None:
        self.asked = True
        self.ledger.expect(1, gives_back=True)
        self.ledger.take(await asyncio.wait_for(self.end.aget(), dice.moment(5e-3)))

    async def _aget_many(self, dice: Dice) -> None:
        most = 1 + dice.below(20)
        self.ledger.expect(most, gives_back=True)
        for payload in await self.end.aget_many(most, timeout=self._patience(dice)):
            self.ledger.take(payload)

    async def _awith(self, dice: Dice) -> None:
        self.ledger.expect(1, gives_back=False)
        place = None
        try:
            async with self.end.acquire_read(timeout=self._patience(dice)) as slot:
                place, _ = self.ledger.take_slot(slot)
                try:
                    self.fate.body()
                    for _ in range(dice.below(3)):
                        await asyncio.sleep(0)  # a cancel in here is an exception in the body
                finally:
                    self.ledger.letting_go(place)  # which gives the slot back, too
        finally:
            if place is not None:
                self.ledger.let_go(place)

    async def _await(self, dice: Dice) -> None:
        self.ledger.expect(1, gives_back=False)
        self._keep(await self.end.acquire_read(timeout=self._patience(dice)), dice)

    async def _aview(self, dice: Dice) -> None:
        self.ledger.expect(1, gives_back=False)
        async with self.end.acquire_read(timeout=self._patience(dice)) as slot:
            self._view(slot)

    async def _aiterate(self, dice: Dice) -> None:
        if self.holds():
            return await self._aget(dice)
        many = 1 + dice.below(8)
        self.ledger.expect(1, gives_back=True)
        async with contextlib.aclosing(self.end.__aiter__()) as payloads:
            async for payload in payloads:
                self.ledger.take(payload)
                many -= 1
                if many == 0:
                    return
                self.ledger.expect(1, gives_back=True)
        await self._closed()

    async def _aslots(self, dice: Dice) -> None:
        if self.holds():
            return await self._await(dice)
        many, place = 1 + dice.below(8), None
        self.ledger.expect(1, gives_back=False)
        try:
            async with contextlib.aclosing(self.end.slots()) as slots:
                async for slot in slots:
                    if place is not None:
                        self.ledger.let_go(place)
                    place, _ = self.ledger.take_slot(slot)
                    self.fate.body()
                    self.ledger.letting_go(place)
                    many -= 1
                    if many == 0:
                        return
                    self.ledger.expect(1, gives_back=False)
        finally:
            if place is not None:
                self.ledger.let_go(place)
        await self._closed()

    async def _closed(self) -> None:
        """Iteration has ended; a plain call says why."""
        await self.end.aget(timeout=0)

    async def _aforget(self, dice: Dice) -> None:
        """A task gets a slot that nobody looks at, or is cancelled before."""
        self.ledger.expect(1, gives_back=False)
        task = asyncio.get_running_loop().create_task(self.end.acquire_read(timeout=self._patience(dice)))
        cancelled = False
        turns = dice.below(6)
        while turns or not task.done():
            try:
                if turns:
                    turns -= 1
                    await asyncio.sleep(0)
                else:
                    task.cancel()
                    await asyncio.wait([task])
            except asyncio.CancelledError:
                cancelled, turns = True, 0
        if not task.cancelled():
            self.ledger.saw(task.result().sequence)
            self.page.count("forgotten")
        del task
        if cancelled:
            raise asyncio.CancelledError

    async def _awaits(self, dice: Dice) -> None:
        if self.waits is None:
            return await self._aget(dice)
        await self.waits.wait(timeout=self._patience(dice))
        self._take_now(dice)

    # in a thread without a loop

    def in_thread(self, dice: Dice) -> None:
        self.make_room(dice)
        ways = (self._get, self._get, self._with, self._with, self._acquire, self._view_on, self._get_many)
        more = (self._iterate, self._take_now, self._wait_in_set, self._wait_in_set)
        dice.pick((*ways, *more))(dice)

    def interruptible(self, dice: Dice) -> None:
        self._get(dice)

    def _get(self, dice: Dice) -> None:
        self.ledger.expect(1, gives_back=True)
        self.ledger.take(self.end.get(timeout=self._patience(dice)))

    def _get_many(self, dice: Dice) -> None:
        most = 1 + dice.below(20)
        self.ledger.expect(most, gives_back=True)
        for payload in self.end.get_many(most, timeout=self._patience(dice)):
            self.ledger.take(payload)

    def _with(self, dice: Dice) -> None:
        self.ledger.expect(1, gives_back=False)
        with self.end.acquire_read(timeout=self._patience(dice)) as slot:
            self._within(slot)
        self._without()

    def _acquire(self, dice: Dice) -> None:
        self.ledger.expect(1, gives_back=False)
        slot = self.end.try_acquire_read()
        if slot is not None:
            self._keep(slot, dice)

    def _view_on(self, dice: Dice) -> None:
        self.ledger.expect(1, gives_back=False)
        with self.end.acquire_read(timeout=self._patience(dice)) as slot:
            self._view(slot)

    def _iterate(self, dice: Dice) -> None:
        if self.holds():
            return self._get(dice)
        many = 1 + dice.below(8)
        self.ledger.expect(1, gives_back=True)
        for payload in self.end:
            self.ledger.take(payload)
            many -= 1
            if many == 0:
                return
            self.ledger.expect(1, gives_back=True)
        self.end.get(timeout=0)

    def _wait_in_set(self, dice: Dice) -> None:
        if self.waits is None:
            return self._get(dice)
        self.waits.wait_sync(timeout=self._patience(dice))
        self._take_now(dice)

    # without waiting

    def _take_now(self, dice: Dice) -> None:
        self.ledger.expect(1, gives_back=True)
        try:
            self.ledger.take(self.end.get_nowait())
        except aiospin.Empty:
            self.page.count("refusals")

    def _look(self) -> None:
        """Ask for a slot, and forget it."""
        self.ledger.expect(1, gives_back=False)
        slot = self.end.try_acquire_read()
        if slot is not None:
            self.ledger.saw(slot.sequence)
            self.page.count("forgotten")
        self.ledger.settle()

    # slots

    def _within(self, slot: Any) -> None:
        self._place, _ = self.ledger.take_slot(slot)
        self.fate.body()
        self.ledger.letting_go(self._place)

    def _without(self) -> None:
        self.ledger.let_go(self._place)

    def _keep(self, slot: Any, dice: Dice) -> None:
        """Hold the slot, with a view of it or without."""
        place, nonce = self.ledger.take_slot(slot)
        self.fate.body()
        self.hold(slot, slot.data if dice.one_in(3) else None, place, nonce)

    def _view(self, slot: Any) -> None:
        """Hold a view that outlives the slot."""
        place, nonce = self.ledger.take_slot(slot)
        self.hold(None, slot.data[:], place, nonce)
        self.page.count("views")
        self.fate.body()
