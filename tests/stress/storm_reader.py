"""A reader in a storm: attaches, takes in every way that there is, holds, lets go in any order, leaves, comes back.

Guarantee: whatever it receives goes through the ledger. Assumption: see storm_role.py.
"""

from __future__ import annotations

import contextlib
import gc
from dataclasses import dataclass
from typing import Any

from storm_book import ENDED, FINISHED, WANTS_SUCCESSOR, Book
from storm_chance import Dice
from storm_ledger import Ledger
from storm_message import Violation, read
from storm_post import Post
from storm_reads import Reads
from storm_role import Dropped, Ended, Role

import aiospin

_MOST_HELD = 6


@dataclass
class Held:
    """A message that was not given back yet: by its slot, or by a view that has outlived the slot."""

    slot: Any
    view: Any
    place: int
    nonce: int


class ReaderRole(Reads, Role):
    """Plays the reader of one rank."""

    def __init__(self, book: Book, post: Post, role: int) -> None:
        super().__init__(book, post, role)
        self.ledger = Ledger(self.page)
        self.held: list[Held] = []

    def tenure(self, dice: Dice) -> bool:
        self.attach(dice)
        self.ledger = Ledger(self.page)
        self.ledger.begin(self.end.statistics().lag[self.role - 1] is not None)
        self.end.__enter__()
        self.ledger.claimed()
        try:
            while True:
                self.leg(self.script.next())
                dice = self.script.next()
                if self.book.stopping or dice.below(4):
                    continue
                return self._leave(dice)
        except Violation as violation:
            lag = self.end.statistics()
            raise Violation(f"{violation}; {self.ledger.story()}; cursor {self.end._cursor}; {lag}") from violation
        except Ended:
            final = self.book.final
            assert final is not None
            self.ledger.ended(final)
            self._detach(dice)
            self.page[ENDED] = FINISHED
            return False
        except Dropped:
            self._let_all_go()
            self.end.close()
            self.ledger.left()
            return True

    def _leave(self, dice: Dice) -> bool:
        if dice.one_in(3):
            self._close(dice)
        else:
            self._detach(dice)
        if len(self.post.roles) == 1 and dice.one_in(2):
            self.page[ENDED] = WANTS_SUCCESSOR
            return False
        return True

    def _detach(self, dice: Dice) -> None:
        self._refuse_a_second_claim(dice)
        if dice.below(3):
            self._let_all_go()
        self.end.detach()
        self._let_all_go()  # what outlives the detach keeps the role
        self.page.count("detaches")

    def _close(self, dice: Dice) -> None:
        if dice.below(3):
            self._let_all_go()
        self.ledger.leaving()
        self.end.close()
        self._refuse_a_second_claim(dice)
        self._let_all_go()
        gc.collect()
        self.ledger.left()
        self.page.count("closes")

    def _refuse_a_second_claim(self, dice: Dice) -> None:
        """As long as bytes are held the role is taken, by this process too."""
        if not self.held or dice.below(4):
            return
        other = aiospin.attach(self.handle)
        try:
            other.__enter__()
        except aiospin.RoleTaken:
            return
        finally:
            other.detach()
        raise Violation(f"a second claim of {self.end!r}, which holds {len(self.held)} messages")

    # what is held

    def holds(self) -> bool:
        return bool(self.held)

    def hold(self, slot: Any, view: Any, place: int, nonce: int) -> None:
        self.held.append(Held(slot, view, place, nonce))

    def make_room(self, dice: Dice) -> None:
        """Let something go: anything, if much is held."""
        while len(self.held) > _MOST_HELD or (self.held and not self.ledger.room):
            self._let_go(dice.below(len(self.held)))
        if self.held and dice.below(2):
            self._let_go(dice.below(len(self.held)))

    def _let_all_go(self) -> None:
        while self.held:
            self._let_go(len(self.held) - 1)

    def _let_go(self, which: int) -> None:
        held = self.held.pop(which)
        if which:
            self.page.count("late releases")
        payload = held.slot.data if held.view is None else held.view
        if read(payload).nonce != held.nonce:
            raise Violation(f"the bytes of nonce {held.nonce:#x} were overwritten while they were held")
        if held.slot is not None and held.view is not None:
            with contextlib.suppress(BufferError):
                held.slot.release()
                raise Violation(f"{held.slot!r} was released under a view")
        self.ledger.letting_go(held.place)
        payload.release()
        held.view = None
        del payload
        if held.slot is not None:
            held.slot.release()
        self.ledger.let_go(held.place)

    # hooks of Role

    def settled(self) -> None:
        self.ledger.settle()

    def prepare(self, dice: Dice) -> None:
        self.make_room(dice)

    def interrupted(self) -> None:
        self.ledger.blur()

    def has_enough(self) -> bool:
        return False  # the end of the stream says so

    def bereaved(self, error: aiospin.PeerDied) -> None:
        """Wait for the next writer."""

    def told(self, error: aiospin.AiospinError) -> None:
        if isinstance(error, aiospin.FragmentLost):
            self.ledger.lost()
        elif isinstance(error, aiospin.ReaderDropped) and self.ledger.was_dropped():
            raise Dropped
        else:
            raise Violation("an error that nothing has caused") from error
