"""A condition on a word in memory that nobody rings for."""

from __future__ import annotations

import operator
import sys
from typing import Any, Final

from aiospin import _backend

FIRST_NAP: Final = 50e-6  # seconds; each nap of a wait is twice as long as the one before, up to the word's bound
WHOLE_WORD: Final = (1 << 64) - 1


def require_unsigned(name: str, value: Any) -> int:
    """The value as 64 bits without a sign. TypeError and ValueError name what is not."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer, not {value!r}") from None
    if not 0 <= number <= WHOLE_WORD:
        raise ValueError(f"{name} must be from 0 to 2**64 - 1, not {value!r}")
    return number


def require_offset(offset: Any) -> int:
    """The offset as bytes that some buffer could have. TypeError and ValueError name what is not."""
    try:
        number = operator.index(offset)
    except TypeError:
        raise TypeError(f"offset must be an integer, not {offset!r}") from None
    if not 0 <= number <= sys.maxsize:
        raise ValueError(f"a word at offset {offset!r} lies in no buffer")
    return number


def require_nap(max_nap: object, *, none_at_all: bool = False) -> None:
    """TypeError or ValueError for what is no longest nap: above 0, or also 0 where a wait may do without."""
    if isinstance(max_nap, bool) or not isinstance(max_nap, (int, float)):
        raise TypeError(f"max_nap must be a number of seconds, not {max_nap!r}")
    if not max_nap >= 0 or (max_nap == 0 and not none_at_all):
        raise ValueError(f"max_nap must be {'0 or more' if none_at_all else 'above 0'} seconds, not {max_nap!r}")


def _require_possible(comparison: str, value: int, mask: int) -> None:
    """ValueError for what no word can fulfil: nobody would ever end that wait. Unknown comparisons pass."""
    never = {"==": value & ~mask != 0, "!=": mask == 0 and value == 0, ">=": value > mask, "<": value == 0}
    if never.get(comparison, False):
        raise ValueError(f"no word & {mask:#x} is ever {comparison} {value:#x}")


class Word:
    """`(word & mask) comparison value` on an aligned 64-bit word of a buffer: a member of a WaitSet.

    buffer      anything with the buffer protocol, read-only is enough; it is kept for as long as the Word lives
    comparison  "==", "!=", ">=" or "<", unsigned
    offset      bytes from the buffer's start
    max_nap     seconds; the longest sleep between two looks

    Raises ValueError for a word outside the buffer or out of alignment, for a condition that no word can fulfil, for
    what does not fit 64 bits, and for a nap that is not above 0; TypeError for what is not of these kinds.
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
        require_nap(max_nap)
        if not isinstance(comparison, str):
            raise TypeError(f"comparison must be one of ==, !=, >=, <, not {comparison!r}")
        offset = require_offset(offset)
        value, mask = require_unsigned("value", value), require_unsigned("mask", mask)
        _require_possible(comparison, value, mask)
        self._watch = _backend.core.WordWatch(buffer, offset, comparison, value, mask)
        masked = "" if mask == WHOLE_WORD else f" & {mask:#x}"
        self._condition = f"word at offset {offset}{masked} {comparison} {value}"
        self.max_nap = max_nap

    def ready(self) -> bool:
        """Look once."""
        return self._watch.ready()

    def __repr__(self) -> str:
        return f"<{self._condition}>"
