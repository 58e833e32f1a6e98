"""Messages on their way into the ring, and how far they have got.

Guarantee: every payload is a flat, contiguous run of bytes; anything else was refused by name when the batch was made.
Assumption: whoever owns the buffers leaves them alone until the call that took them has returned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias

Piece: TypeAlias = "bytes | memoryview"
Pieces: TypeAlias = "tuple[Piece, ...]"
Encode: TypeAlias = "Callable[[Any], Any] | None"

_FLAT: Final = "B"


def as_piece(buffer: Any) -> Piece:
    """The bytes of any C-contiguous bytes-like object, uncopied. TypeError or BufferError names what it is not."""
    if type(buffer) is bytes:
        return buffer
    try:
        view = memoryview(buffer)
    except TypeError:
        raise TypeError(f"a payload must be bytes-like, not {type(buffer).__name__}") from None
    if not view.c_contiguous:
        raise BufferError(f"a payload must be C-contiguous, and this {type(buffer).__name__} is not")
    if view.ndim == 1 and view.format == _FLAT:
        return view
    # cast refuses shapes with a zero in them
    return view.cast(_FLAT) if view.nbytes else b""


def gather(buffers: tuple[Any, ...], encode: Encode) -> Pieces:
    """The pieces of one message. With a codec there is exactly one object."""
    if encode is None:
        return tuple(map(as_piece, buffers))
    if len(buffers) != 1:
        raise TypeError(f"with a codec one object is put at a time, not {len(buffers)}")
    return (as_piece(encode(buffers[0])),)


def gather_many(payloads: Iterable[Any], encode: Encode) -> list[Pieces]:
    """The pieces of many messages, one payload each."""
    if isinstance(payloads, (bytes, bytearray, memoryview, str)):
        raise TypeError(f"payloads is an iterable of payloads, not one {type(payloads).__name__}")
    return [gather((payload,), encode) for payload in payloads]


class Batch:
    """Messages in order; `at` is the first that is not wholly in the ring, `offset` how much of it is."""

    __slots__ = ("at", "messages", "offset", "sizes")

    def __init__(self, messages: list[Pieces]) -> None:
        self.messages = messages
        self.sizes = [sum(map(len, pieces)) for pieces in messages]
        self.at = 0
        self.offset = 0

    @property
    def midway(self) -> bool:
        """A message is partly in the ring: nothing else may be published before the rest of it."""
        return self.offset != 0

    def fragment(self, size: int) -> Piece:
        """The next `size` bytes of the message at `at`."""
        pieces = self.messages[self.at]
        if len(pieces) != 1:
            self.messages[self.at] = pieces = (b"".join(pieces),)
        return memoryview(pieces[0])[self.offset : self.offset + size]
