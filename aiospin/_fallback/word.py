"""A word of a buffer that somebody stores to and nobody rings for.

Guarantee: the same calls as the native WordWatch, but for the waiter thread that this backend does not have.
Assumption: an aligned item of a memoryview is read in one load.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

_COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    "<": operator.lt,
}


def store_word(buffer: Any, value: int, offset: int) -> None:
    """Store to an aligned 64-bit word of a writable buffer."""
    _word(buffer, operator.index(offset))[0] = operator.index(value)


def _word(buffer: Any, offset: int) -> memoryview:
    whole = memoryview(buffer).cast("B")
    if not 0 <= offset <= len(whole) - 8:
        raise ValueError(f"a word of 8 bytes at offset {offset} does not lie in a buffer of {len(whole)} bytes")
    if offset % 8:
        raise ValueError(f"the word at offset {offset} is not aligned to 8 bytes")
    return whole[offset : offset + 8].cast("Q")


class WordWatch:
    """One aligned 64-bit word of a buffer, compared with a value."""

    def __init__(self, buffer: Any, offset: int, comparison: str, value: int, mask: int) -> None:
        if comparison not in _COMPARISONS:
            raise ValueError(f"comparison must be one of ==, !=, >=, <, not {comparison!r}")
        self._word = _word(buffer, operator.index(offset))
        self._compare = _COMPARISONS[comparison]
        self._value = operator.index(value)
        self._mask = operator.index(mask)

    def ready(self) -> bool:
        """Look once."""
        return self._compare(self._word[0] & self._mask, self._value)

    def watch(self, us: float) -> bool:
        """Look once: watching would keep the GIL from whoever stores."""
        return self.ready()
