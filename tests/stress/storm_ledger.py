"""What a reader has received, held and let go, and what its successor must therefore find. Lives in the book.

A tenure (from attach to detach, close or death) works in one bank of its page. The next one computes from it where it
has to begin, fills the other bank, and turns the page with one store; whoever is killed in between has changed nothing.

    NEXT        1 + the number of the next message, once one was received; 0 before
    LOW, HIGH   the least and the greatest number that the next message may have, while NEXT is 0
    INTENT      2 * how many messages the call under way may take, + 1 if it gives their bytes back as well
    HELD...     for each message that was not given back: 2 * (1 + its number), + 1 once that has begun
    FURTHEST    1 + the greatest number that was handed out, though perhaps not kept

Guarantee: raises Violation for a gap, a repetition, a wrong mark of redelivery, a wrong beginning.
Assumption: INTENT is noted before a call and HELD before NEXT, so a kill at any point leaves bounds, and never a wrong
number.
"""

from __future__ import annotations

from typing import Any, Final

from storm_book import (
    BANK,
    BANKS,
    DROP_BEGUN,
    DROP_DONE,
    NEVER,
    SENDING,
    SENT,
    Page,
)
from storm_message import Message, Violation, read

NEXT: Final = 0
LOW: Final = 1
HIGH: Final = 2
INTENT: Final = 3
PLACE: Final = 4
DROPS_LOW: Final = 5  # drops of this rank that were over for sure when this tenure began
DROPS_HIGH: Final = 6  # and those that had begun
MARKED_LOW: Final = 7  # numbers below it must be marked as redelivered
MARKED_HIGH: Final = 8  # numbers from it on must not
JOINING: Final = 9  # 1 if the tenure began as a late joiner, or may have
TENURES: Final = 10
FURTHEST: Final = 11
HELD: Final = 16
HELD_ROOM: Final = 48

_NAMES: Final = (
    *("NEXT", "LOW", "HIGH", "INTENT", "PLACE", "DROPS_LOW", "DROPS_HIGH"),
    *("MARKED_LOW", "MARKED_HIGH", "JOINING", "TENURES", "FURTHEST"),
)

# PLACE
KEPT: Final = 0
LEAVING: Final = 1
LEFT: Final = 2


class Ledger:
    """Of one rank. `begin`, attach, `claimed`; then what happens."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._rank = page.role - 1
        self._writer = page.book.page(0)
        self._at = BANKS[page[BANK]]
        self._nonce = -1
        self._numbered = False
        self._may_lose = False
        self._joins_above = 0
        self._free = list(range(HELD_ROOM))

    def __getitem__(self, word: int) -> int:
        return self._page[self._at + word]

    def __setitem__(self, word: int, value: int) -> None:
        self._page[self._at + word] = value

    # tenures

    def begin(self, gates: bool) -> None:
        """Before the attach. `gates`: whether the rank holds up the writer now, as the queue sees it."""
        done, published = self._writer[DROP_DONE + self._rank], self._writer[SENT]
        low, high = self._successor()
        marked_high = max(self[MARKED_HIGH], self[FURTHEST], self._base_high() + self[INTENT] // 2)
        marked_low = max(self[MARKED_LOW], self[FURTHEST], self._base() if self[NEXT] else 0)
        tenures, joining, place = self[TENURES], self[JOINING] and not self[NEXT], self[PLACE]
        gone = place == LEFT or done > self[DROPS_HIGH]
        unsure = place == LEAVING or done > self[DROPS_LOW]
        self._at = BANKS[1 - self._page[BANK]]
        for word in range(HELD + HELD_ROOM):
            self[word] = 0
        if gone:
            self._joins_above, low, high, marked_low, marked_high = 0, published, NEVER, 0, 0
        elif unsure or (joining and not gates):
            self._joins_above, low, high, marked_low = high, min(low, published), NEVER, 0
        self[LOW], self[HIGH] = low, high
        self[MARKED_LOW], self[MARKED_HIGH] = marked_low, marked_high
        self[JOINING] = int(gone or unsure or joining)
        self[DROPS_LOW], self[DROPS_HIGH] = done, NEVER
        self[TENURES] = tenures + 1
        self._may_lose = tenures > 0 and not gone
        self._page[BANK] = 1 - self._page[BANK]
        if gone or unsure:
            self._page.count("joins")

    def claimed(self) -> None:
        """After the attach."""
        begun = self[DROPS_HIGH] = self._writer[DROP_BEGUN + self._rank]
        under_way = self._writer[SENDING]  # before SENT: what is in neither has begun after the attach
        newest = self._writer[SENT] + under_way + 1  # + 1: it may begin within a large message, and skips that
        if begun > self[DROPS_LOW]:
            self[JOINING], self[MARKED_LOW] = 1, 0
            self[HIGH] = newest if self[HIGH] == NEVER else max(self[HIGH], newest)
        elif self[HIGH] == NEVER:
            self[HIGH] = max(self._joins_above, newest)

    def was_dropped(self) -> bool:
        """Whether the writer may have dropped this very tenure."""
        return self._writer[DROP_BEGUN + self._rank] > self[DROPS_LOW]

    def leaving(self) -> None:
        """Before close()."""
        self[PLACE] = LEAVING

    def left(self) -> None:
        """After close(), and after the last lease."""
        self[PLACE] = LEFT

    def _base(self) -> int:
        return self[NEXT] - 1 if self[NEXT] else self[LOW]

    def _base_high(self) -> int:
        return self[NEXT] - 1 if self[NEXT] else self[HIGH]

    def _successor(self) -> tuple[int, int]:
        """The least and the greatest number that a successor may begin with."""
        words = [self[HELD + i] for i in range(HELD_ROOM)]
        held = [word // 2 - 1 for word in words if word]
        kept_for_sure = [word // 2 - 1 for word in words if word and not word & 1]
        taken = self[INTENT] // 2 if self[INTENT] & 1 else 0
        return min([*held, self._base()]), min([*kept_for_sure, self._base_high() + taken])

    # calls

    def expect(self, many: int, *, gives_back: bool) -> None:
        """A call begins that takes up to `many` messages."""
        self[INTENT] = 2 * many + gives_back

    def settle(self) -> None:
        """It is over, and all that it took is noted."""
        self[INTENT] = 0

    def blur(self) -> None:
        """It is over, and what it may have taken is lost to us: a signal's exception came before we could note it."""
        many = self[INTENT] // 2
        if not self[INTENT] & 1:  # a slot that it had went back, and had been handed out all the same
            self[MARKED_HIGH] = max(self[MARKED_HIGH], self._base_high() + many)
        elif many:
            lost = self._may_lose and not self._numbered  # FragmentLost may have come, too
            low, high = self._base(), self._base_high() + many + lost
            self[HIGH] = high
            self[LOW] = low
            self[NEXT] = 0
        self[INTENT] = 0

    def take(self, payload: Any) -> Message:
        """Owned bytes were received."""
        message = self._read(payload)
        self._number(message.low, message.high)
        return message

    def take_slot(self, slot: Any) -> tuple[int, int]:
        """A slot was received: the place where it is noted until `let_go`, and its nonce."""
        message, number = self._read(slot.data), slot.sequence
        if not message.low <= number <= message.high or slot.size != message.size:
            raise Violation(f"{slot!r} holds the message {message}")
        if number < self[MARKED_LOW] and not slot.redelivered:
            raise Violation(f"{slot!r} comes again and is not marked; all below {self[MARKED_LOW]} must be")
        if number >= self[MARKED_HIGH] and slot.redelivered:
            raise Violation(f"{slot!r} is marked as redelivered; nobody had it, nor any from {self[MARKED_HIGH]} on")
        if slot.redelivered:
            self._page.count("redelivered")
        place = self._free.pop()
        self[HELD + place] = 2 * (1 + number)
        self._number(number, number)
        return place, message.nonce

    def letting_go(self, place: int) -> None:
        """Its bytes may be given back from now on."""
        self[HELD + place] |= 1

    def let_go(self, place: int) -> None:
        """They were."""
        self[HELD + place] = 0
        self._free.append(place)

    def saw(self, number: int) -> None:
        """A slot was handed out, and went back untouched: the next call gets it again."""
        self[FURTHEST] = max(self[FURTHEST], number + 1)
        if not (self._base() <= number <= self._base_high()):
            raise Violation(f"message {number} was handed out, not {self}")

    def lost(self) -> None:
        """FragmentLost was raised."""
        if self._numbered or not self._may_lose:
            raise Violation(f"FragmentLost in mid-stream or without a predecessor, at {self}")
        self._may_lose = False
        self._page.count("lost fragments")
        self[HIGH] += 1

    def ended(self, final: int) -> None:
        """The stream has ended with that many messages, and this reader has been told so."""
        if self[JOINING] and not self._numbered:
            return  # nobody confirmed it in time
        if not self._base() <= final <= self._base_high():
            raise Violation(f"the stream ended after {final} messages, and this reader has had all before {self}")

    @property
    def room(self) -> bool:
        """Whether one more slot can be noted."""
        return len(self._free) > 1

    def _read(self, payload: Any) -> Message:
        message = read(payload)
        if message.nonce <= self._nonce:
            raise Violation(f"{message} comes after nonce {self._nonce:#x}: twice, or out of order")
        self._nonce = message.nonce
        return message

    def _number(self, low: int, high: int) -> None:
        low, high = max(low, self._base()), min(high, self._base_high())
        if low > high:
            raise Violation(f"a message with another number than {self} was received: {low} to {high} is left of it")
        self._numbered = True
        if low == high:
            self[NEXT] = low + 2
        else:
            self[HIGH] = high + 1
            self[LOW] = low + 1
        self._page.count("messages")

    def story(self) -> str:
        """Both banks, for whoever has to find out."""
        banks = []
        for at in (self._at, sum(BANKS) - self._at):
            words = [self._page[at + word] for word in range(HELD + HELD_ROOM)]
            held = [f"{word // 2 - 1}{'?' if word & 1 else ''}" for word in words[HELD:] if word]
            banks.append(f"{dict(zip(_NAMES, words[:12], strict=True))}, held {held}")
        return f"now {banks[0]}; before {banks[1]}"

    def __str__(self) -> str:
        if self[NEXT]:
            return f"number {self[NEXT] - 1}"
        return f"numbers {self[LOW]} to {self[HIGH]}"
