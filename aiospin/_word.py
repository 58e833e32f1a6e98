"""A condition on a word in memory that nobody rings for."""

from __future__ import annotations

from typing import Any, Final

from aiospin import _backend

FIRST_NAP: Final = 50e-6  # seconds; each nap of a wait is twice as long as the one before, up to the word's bound
WHOLE_WORD: Final = (1 << 64) - 1


class Word:
    """`(word & mask) comparison value` on an aligned 64-bit word of a buffer: a member of a WaitSet.

    buffer      anything with the buffer protocol, read-only is enough; it is kept for as long as the Word lives
    comparison  "==", "!=", ">=" or "<", unsigned
    offset      bytes from the buffer's start
    max_nap     seconds; the longest sleep between two looks

    Raises ValueError for a word outside the buffer or out of alignment, and for a nap that is not above 0.
    """

    def __init__(
        self,
        buffer: Any,
        comparison: str,
        value: int,
        *,
        offset: int = 0,
        mask: int = WHOLE_WORD,
        max_nap: float = 1e-3,
    ) -> None:
        if isinstance(max_nap, bool) or not isinstance(max_nap, (int, float)):
            raise TypeError(f"max_nap must be a number of seconds, not {max_nap!r}")
        if not max_nap > 0:
            raise ValueError(f"max_nap must be above 0 seconds, not {max_nap!r}")
        self._watch = _backend.core.WordWatch(buffer, offset, comparison, value, mask)
        self._condition = f"word at offset {offset} {comparison} {value}"
        self.max_nap = max_nap

    def ready(self) -> bool:
        """Look once."""
        return self._watch.ready()

    def __repr__(self) -> str:
        return f"<{self._condition}>"
