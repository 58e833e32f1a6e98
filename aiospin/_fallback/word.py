"""Words and bytes of a buffer that somebody stores to and nobody rings for.

Guarantee: the same calls and refusals as the native WordWatch and BytesWatch, but for the waiter thread that this
backend does not have. Watching is one look: more would keep the GIL from whoever stores.
Assumption: ctypes reads and writes an aligned 64-bit word in one access.
"""

from __future__ import annotations

import ctypes
import operator
from collections.abc import Callable
from typing import Any, Final

from aiospin._finalizers import quiet_at_exit

_COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    "<": operator.lt,
}
_SIMPLE: Final = 0
_WRITABLE: Final = 1
_MOST: Final = 4096  # bytes that BytesWatch compares, as natively


class _Record(ctypes.Structure):
    """CPython's Py_buffer."""

    _fields_ = (
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.c_void_p),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_void_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    )


class _View:
    """A buffer that stays where it is until release(). A memoryview would not tell its address."""

    def __init__(self, buffer: Any, flags: int) -> None:
        self._record: _Record | None = None
        record = _Record()
        ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(buffer), ctypes.byref(record), ctypes.c_int(flags))
        self._record = record
        self.address: int = record.buf or 0
        self.length: int = record.len

    def word_at(self, offset: int) -> ctypes.c_uint64:
        if not 0 <= offset <= self.length - 8:
            raise ValueError(f"a word of 8 bytes at offset {offset} does not lie in a buffer of {self.length} bytes")
        if (self.address + offset) % 8:
            raise ValueError(f"the word at offset {offset} is not aligned to 8 bytes")
        return ctypes.c_uint64.from_address(self.address + offset)

    def release(self) -> None:
        record, self._record = self._record, None
        if record is not None:
            ctypes.pythonapi.PyBuffer_Release(ctypes.byref(record))

    @quiet_at_exit
    def __del__(self) -> None:
        self.release()


def store_word(buffer: Any, value: int, offset: int) -> None:
    """Store to an aligned 64-bit word of a writable buffer."""
    view = _View(buffer, _WRITABLE)
    try:
        view.word_at(operator.index(offset)).value = operator.index(value)
    finally:
        view.release()


class WordWatch:
    """One aligned 64-bit word of a buffer, compared with a value."""

    def __init__(self, buffer: Any, offset: int, comparison: str, value: int, mask: int) -> None:
        if comparison not in _COMPARISONS:
            raise ValueError(f"comparison must be one of ==, !=, >=, <, not {comparison!r}")
        self._compare = _COMPARISONS[comparison]
        self._value = operator.index(value)
        self._mask = operator.index(mask)
        self._word: ctypes.c_uint64 | None = None
        self._view = _View(buffer, _SIMPLE)
        try:
            self._word = self._view.word_at(operator.index(offset))
        except ValueError:
            self._view.release()
            raise

    def ready(self) -> bool:
        """Look once."""
        if self._word is None:
            raise ValueError("the buffer was released")
        return self._compare(self._word.value & self._mask, self._value)

    def watch(self, us: float, held_us: float) -> bool:
        """Look once."""
        return self.ready()

    def release(self) -> None:
        """Let go of the buffer. Idempotent."""
        self._word = None
        self._view.release()


class BytesWatch:
    """All bytes of a small buffer, compared with what they were."""

    def __init__(self, buffer: Any) -> None:
        view = _View(buffer, _SIMPLE)
        length = view.length
        if not 0 < length <= _MOST:
            view.release()
            if length == 0:
                raise ValueError("an empty buffer: there is nothing to watch")
            raise ValueError(
                f"a buffer of {length} bytes cannot be watched whole; at most {_MOST} bytes can: "
                "give the part that changes"
            )
        self._view: _View | None = view
        self._seen = ctypes.string_at(view.address, length)

    def changed(self) -> bool:
        """Whether a byte has changed since the last look."""
        if self._view is None:
            raise ValueError("the buffer was released")
        before = self._seen
        self._seen = ctypes.string_at(self._view.address, self._view.length)
        return self._seen != before

    def watch(self, us: float, held_us: float) -> bool:
        """Look once."""
        return self.changed()

    def release(self) -> None:
        """Let go of the buffer. Idempotent."""
        if self._view is not None:
            self._view.release()
            self._view = None
