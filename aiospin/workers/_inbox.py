"""What a worker without a loop was asked and has not begun: it looks ahead, so that a call given up by then never runs.

Guarantee: messages are handed out in the order in which they came, and none that its group has cancelled by then.
Assumption: at most a few calls lie ahead (the group's `pipeline`), since their slots are held.
"""

from __future__ import annotations

import collections

from aiospin import QueueReader, ReadSlot
from aiospin.workers._envelope import Envelope, Kind
from aiospin.workers._hosted import own


class Inbox:
    """The requests of one worker."""

    def __init__(self, requests: QueueReader[bytes]) -> None:
        self._requests = requests
        self._ahead: collections.deque[tuple[ReadSlot | None, Envelope]] = collections.deque()
        self._cancelled: set[int] = set()

    def __bool__(self) -> bool:
        return bool(self._ahead)

    def wait(self) -> None:
        """Wait for a message. QueueClosed when no more will come."""
        slot = self._requests.acquire_read().__enter__()
        self._put(slot)

    def look(self, running: int = 0) -> None:
        """Take in what has come. `running` is a call that could be cancelled beside those that lie ahead; it may last,
        and what would tell of that must find room, so these give theirs back."""
        while (slot := self._requests.try_acquire_read()) is not None:
            self._put(slot, running)

    def pop(self) -> tuple[ReadSlot | None, Envelope, bool]:
        """The next call, the slot that holds it if one does, and whether it is to be run. Look first."""
        slot, message = self._ahead.popleft()
        return slot, message, not self.is_cancelled(message.id)

    def is_cancelled(self, number: int) -> bool:
        """Whether a call was cancelled. Asked once: it is forgotten with the answer."""
        if number in self._cancelled:
            self._cancelled.discard(number)
            return True
        return False

    def _put(self, slot: ReadSlot, running: int = 0) -> None:
        message = Envelope.parse(slot.data)
        if message.kind in (Kind.CALL, Kind.BROADCAST):
            self._ahead.append((None, own(slot)) if running else (slot, message))
            return
        kind, number = message.kind, message.id
        del message
        slot.release()
        # One that is not here has run already.
        if kind == Kind.CANCEL and (number == running or any(ahead.id == number for _, ahead in self._ahead)):
            self._cancelled.add(number)
