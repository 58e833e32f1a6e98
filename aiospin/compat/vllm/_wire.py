"""Objects as messages: a pickle of protocol 5, and beside it the buffers that are too large to be copied into it.

A message without such buffers is the pickle (its first byte is 0x80). Any other begins with a table:

    byte 0     _TABLE
    byte 8     u32 number of buffers, u32 bytes of the pickle
    byte 16    for each buffer: u64 where it begins in the message, u64 bytes
    then       the pickle; then the buffers, each on a line of 64 bytes, or, from LEAST bytes on, on pages of its own

Guarantee: what is decoded owns its memory or holds a loan of it, and can be written where the original could. Nothing
in a message is used as a length or a place before it was checked.
Assumption: pickle runs whatever a message says. Only processes that trust each other may share a queue.
"""

from __future__ import annotations

import copyreg
import pickle
import struct
from collections.abc import Callable, Sequence
from typing import Any, Final

from aiospin import _layout, _pages
from aiospin._errors import CorruptSlot
from aiospin.compat.vllm._loan import LEAST, Loans
from aiospin.compat.vllm._tensors import reduce_tensor, tensor_type

SMALL: Final = 16384
"""Buffers of fewer bytes are copied into the pickle: cheaper than a place of their own. So messages of at most as many
bytes are pickles."""

_KEPT: Final = 1024
"""Bytes of a pickle up to which its pickler is used again."""

_PICKLE: Final = 0x80  # pickle.PROTO, with which every pickle from protocol 2 on begins
_TABLE: Final = 1
_HEAD: Final = struct.Struct("<B7xII")
_ENTRY: Final = struct.Struct("<QQ")
_LINE: Final = 64
_PADDING: Final = bytes(_pages.BYTES)
PLAIN: Final = frozenset({bytes, str, int, float, bool, type(None)})
"""What has no buffers, and needs no more than pickle.dumps."""

_dumps, _loads = pickle.dumps, pickle.loads
_registered = copyreg.dispatch_table


def encode(obj: object, writer: Any) -> Sequence[Any]:
    """The buffers that make up the message, to be sent as they are, one behind the other.

    Large ones are laid out for the place where the writer will put them; should it be another, they are only slower to
    read. Raises what pickling raises.
    """
    if type(obj) in PLAIN:
        return (_dumps(obj, 5),)
    try:
        encoder = _idle.pop()
    except IndexError:
        encoder = _Encoder()
    else:
        if encoder.registered != _registered or (encoder.tensor is None and tensor_type() is not None):
            encoder = _Encoder()
    chunks, buffers = encoder.chunks, encoder.buffers
    encoder.dump(obj)
    if buffers:
        return _laid_out(chunks, buffers, writer._cursor + _layout.SLOT_HEADER_BYTES)
    if len(chunks) > 1 or len(chunks[0]) > _KEPT:
        return chunks
    # A pickler's memory of what it has met never shrinks, and is wiped as a whole each time: only small ones are kept.
    parts = (chunks.pop(),)
    encoder.forget()
    _idle.append(encoder)
    return parts


class _Encoder:
    """A pickler, and where it puts what. Used again: making one costs more than pickling a small object."""

    def __init__(self) -> None:
        self.chunks: list[Any] = []  # of the pickle
        self.buffers: list[memoryview] = []
        self.tensor = tensor_type()
        self.registered = _registered.copy()
        pickler = pickle.Pickler(_Sink(self.chunks.append), 5, buffer_callback=_placing(self.buffers))
        if self.tensor is not None:
            # On top of what is registered for everybody, which a table of a pickler's own replaces.
            pickler.dispatch_table = {**self.registered, self.tensor: reduce_tensor}
        self.dump, self.forget = pickler.dump, pickler.clear_memo


class _Sink:
    """What a pickler takes for a file."""

    __slots__ = ("write",)

    def __init__(self, write: Any) -> None:
        self.write = write


_idle: list[_Encoder] = []  # as many as threads have ever pickled at a time


def _placing(buffers: list[memoryview]) -> Callable[[pickle.PickleBuffer], bool]:
    def place(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes < SMALL:
            return True
        buffers.append(raw)
        return False

    return place


def _laid_out(chunks: list[Any], buffers: list[memoryview], position: int) -> list[Any]:
    length = sum(map(len, chunks))
    at = _HEAD.size + len(buffers) * _ENTRY.size + length
    table = [_HEAD.pack(_TABLE, len(buffers), length)]
    tail: list[Any] = []
    for buffer in buffers:
        grain = _LINE if buffer.nbytes < LEAST else _pages.BYTES
        gap = -(position + at) % grain
        table.append(_ENTRY.pack(at + gap, buffer.nbytes))
        tail += (_PADDING[:gap], buffer)
        at += gap + buffer.nbytes
        if grain > _LINE:  # nothing else on its last page
            gap = -(position + at) % grain
            tail.append(_PADDING[:gap])
            at += gap
    return [b"".join(table), *chunks, *tail]


def decode(slot: Any, loans: Loans | None) -> Any:
    """The object in a slot, which is released. Raises what unpickling raises, CorruptSlot for what is no message."""
    try:
        return _decoded(slot, loans)
    finally:
        slot.__exit__(None, None, None)  # views may live on


def _decoded(slot: Any, loans: Loans | None) -> Any:
    data: memoryview = slot.data
    stream = data[:0]
    try:
        if len(data) <= SMALL or data[0] == _PICKLE:
            return _loads(data)
        stream, places = _parsed(data)
        if slot._position is not None:
            return _loads(stream, buffers=[_taken(data, slot._position, *place, loans) for place in places])
        head = bytes(stream)
    finally:
        del data, stream  # or whoever keeps an exception keeps the slot
    whole = slot.keep()
    return _loads(head, buffers=[whole[begin : begin + size] for begin, size in places])


def _taken(data: memoryview, position: int, begin: int, size: int, loans: Loans | None) -> Any:
    """One buffer: a bytearray, or a memoryview of what is lent."""
    lent = loans.lend(data, position, begin, size) if loans is not None and size >= LEAST else None
    return bytearray(data[begin : begin + size]) if lent is None else lent


def _parsed(data: memoryview) -> tuple[memoryview, list[tuple[int, int]]]:
    """The pickle, and the places of the buffers."""
    if data[0] != _TABLE:
        raise CorruptSlot(f"a message of {len(data)} bytes that begins with {bytes(data[:4])!r} holds no object")
    _, count, length = _HEAD.unpack_from(data)
    begin = _HEAD.size + count * _ENTRY.size
    if begin + length > len(data):
        raise CorruptSlot(f"a message of {len(data)} bytes claims {count} buffers and a pickle of {length} bytes")
    places = list(_ENTRY.iter_unpack(data[_HEAD.size : begin]))
    for place, size in places:
        if place + size > len(data):
            raise CorruptSlot(f"a message of {len(data)} bytes claims a buffer of {size} bytes at {place}")
    return data[begin : begin + length], places
