"""What a stray or hostile writer does to a segment: words, fields that agree with each other, plain scribbles.

Guarantee: every decision comes from the `random.Random` that is passed, so that a seed tells the whole story.
Assumption: the segment is open in this process; its bytes are written through the mapping or the file.
"""

from __future__ import annotations

import os
import random
import struct
from typing import Any

from aiospin import _layout

ALL = (1 << 64) - 1

_WRITER_WORDS = {
    "shutdown": _layout.CONTROL_SHUTDOWN,
    "published": _layout.CONTROL_PUBLISHED,
    "journal 0 cursor": _layout.CONTROL_JOURNAL,
    "journal 0 sequence": _layout.CONTROL_JOURNAL + 8,
    "journal 1 cursor": _layout.CONTROL_JOURNAL + 16,
    "journal 1 sequence": _layout.CONTROL_JOURNAL + 24,
    "needed": _layout.CONTROL_ROOM_NEEDED,
    "room epoch": _layout.CONTROL_ROOM_EPOCH,
    "writer seat": _layout.CONTROL_WRITER_SEAT,
    "writer pid": _layout.CONTROL_WRITER_SEAT + _layout.SEAT_PID,
    "writer start": _layout.CONTROL_WRITER_SEAT + _layout.SEAT_START,
    "writer namespace": _layout.CONTROL_WRITER_SEAT + _layout.SEAT_PID_NAMESPACE,
    "writer closed": _layout.CONTROL_WRITER_CLOSED,
}
_READER_WORDS = {
    "released": _layout.READER_RELEASED,
    "park epoch": _layout.READER_PARK_EPOCH,
    "stay": _layout.READER_STAY,
    "seat": _layout.READER_SEAT,
    "pid": _layout.READER_SEAT + _layout.SEAT_PID,
    "start": _layout.READER_SEAT + _layout.SEAT_START,
    "namespace": _layout.READER_SEAT + _layout.SEAT_PID_NAMESPACE,
    "acquired": _layout.READER_ACQUIRED,
}
_GATE_WORDS = {"gate": _layout.GATE_GATE, "gate start": _layout.GATE_START, "rang at": _layout.GATE_RANG_AT}


def words(readers: int) -> dict[str, int]:
    """Every word of the control area, by name: its offset in the file."""
    control = _layout.control_offset(readers)
    found = {name: control + offset for name, offset in _WRITER_WORDS.items()}
    for rank in range(readers):
        lines, gate = _layout.reader_offset(readers, rank), _layout.gate_offset(readers, rank)
        found |= {f"reader {rank} {name}": lines + offset for name, offset in _READER_WORDS.items()}
        found |= {f"reader {rank} {name}": gate + offset for name, offset in _GATE_WORDS.items()}
    return found


def nasty(chance: random.Random, old: int, capacity: int) -> int:
    """A value near one that matters: the ends of the range, of the ring, what was there."""
    near = chance.choice(
        [
            *(0, 1, 2, 3, old + 1, old - 1, old + 64, old - 64, old + capacity, old - capacity, old + capacity + 64),
            *(capacity, capacity - 64, capacity + 64, 1 << 32, (1 << 63) - 64, 1 << 63, ALL, ALL - 1, ALL - 63),
            *(old ^ 1 << chance.randrange(64), chance.getrandbits(64), chance.randrange(2 * capacity)),
        ]
    )
    return near & ALL


def damage(segment: Any, chance: random.Random) -> str:
    """Damage the segment once; says how."""
    return chance.choice(_KINDS)(segment, chance)


def set_word(segment: Any, offset: int, value: int) -> None:
    """Store a word as a stray store of another process would."""
    os.pwrite(segment.fd, struct.pack("<Q", value), offset)


def _word(segment: Any, chance: random.Random) -> str:
    name, offset = chance.choice(list(words(segment.readers).items()))
    value = nasty(chance, segment.mapping.load(offset), segment.capacity)
    set_word(segment, offset, value)
    return f"{name} = {value:#x}"


def _some_slot(segment: Any, chance: random.Random) -> int:
    """The file offset of a slot: where a reader goes on, or anywhere."""
    readers, capacity = segment.readers, segment.capacity
    at = chance.randrange(capacity)
    if readers and chance.random() < 0.8:
        lines = _layout.reader_offset(readers, chance.randrange(readers))
        at = segment.mapping.load(lines + chance.choice((_layout.READER_RELEASED, _layout.READER_ACQUIRED)))
        for _ in range(chance.randrange(3)):
            size = fields_of(segment, _layout.ring_offset(readers) + at % capacity // 64 * 64)["size"]
            at += _layout.stride(size % capacity)
    return _layout.ring_offset(readers) + at % capacity // 64 * 64


_FIELDS = ("sequence", "total", "offset", "size", "flags", "checksum")


def fields_of(segment: Any, at: int) -> dict[str, int]:
    """The header of the slot at a file offset."""
    header = os.pread(segment.fd, _layout.SLOT_HEADER_BYTES, at)
    return dict(zip(_FIELDS, _layout.SLOT_HEADER.unpack(header), strict=True))


def patch_slot(segment: Any, at: int, **changes: int) -> None:
    """Overwrite fields of the slot header at a file offset."""
    values = fields_of(segment, at) | {name: value & ALL for name, value in changes.items()}
    values |= {name: values[name] & 0xFFFFFFFF for name in ("flags", "checksum")}
    os.pwrite(segment.fd, _layout.SLOT_HEADER.pack(*values.values()), at)


def _slot(segment: Any, chance: random.Random) -> str:
    at, field = _some_slot(segment, chance), chance.choice(_FIELDS)
    value = nasty(chance, fields_of(segment, at)[field], segment.capacity)
    patch_slot(segment, at, **{field: value})
    return f"slot at {at}: {field} = {value:#x}"


def _slot_in_agreement(segment: Any, chance: random.Random) -> str:
    at = _some_slot(segment, chance)
    size = fields_of(segment, at)["size"]
    value = nasty(chance, size, segment.capacity) if chance.random() < 0.5 else chance.randrange(segment.capacity - 63)
    changes = chance.choice(
        [
            {"size": value, "total": value},
            {"offset": value, "total": value + size},
            {"total": value, "offset": value - size},
            {"size": value, "total": ALL >> chance.randrange(64)},
        ]
    )
    patch_slot(segment, at, **changes)
    return f"slot at {at}: {changes}"


def _move_the_stream(segment: Any, chance: random.Random) -> str:
    """Every cursor to one place, as if that many bytes had passed."""
    readers, capacity = segment.readers, segment.capacity
    at = words(readers)
    to = nasty(chance, segment.mapping.load(at["published"]), capacity)
    if chance.random() < 0.8:
        to = to // 64 * 64
    changes = {"published": to, f"journal {chance.randrange(2)} cursor": to}
    if chance.random() < 0.5:
        changes[f"journal {chance.randrange(2)} sequence"] = nasty(chance, 0, capacity)
    for rank in range(readers):
        where = f"reader {rank} {chance.choice(('released', 'gate start'))}"
        changes[where] = to - chance.choice((0, 64 * chance.randrange(capacity // 32))) & ALL
    for name, value in changes.items():
        set_word(segment, at[name], value)
    return f"the stream moved to {to:#x}: {changes}"


def _standing(segment: Any, chance: random.Random) -> str:
    """Gate and stay of a rank as they would be after joins, leaves and drops."""
    if segment.readers == 0:
        return _word(segment, chance)
    rank, at = chance.randrange(segment.readers), words(segment.readers)
    stay = nasty(chance, segment.mapping.load(at[f"reader {rank} stay"]), segment.capacity)
    set_word(segment, at[f"reader {rank} stay"], stay)
    if chance.random() < 0.7:
        set_word(segment, at[f"reader {rank} gate"], chance.choice((stay, stay | 1)))
    return f"reader {rank} stay = {stay:#x}"


def _scribble(segment: Any, chance: random.Random) -> str:
    """Bytes anywhere behind the header, aligned to nothing."""
    readers = segment.readers
    at = chance.randrange(_layout.control_offset(readers), _layout.gate_offset(readers, readers))
    if chance.random() < 0.5:
        at = _layout.ring_offset(readers) + chance.randrange(segment.capacity - 32)
    noise = chance.randbytes(chance.randint(1, 24))
    os.pwrite(segment.fd, noise, at)
    return f"{len(noise)} bytes of noise at {at}"


_KINDS = (
    *(_word, _word, _word, _slot, _slot, _slot_in_agreement, _slot_in_agreement, _slot_in_agreement),
    *(_move_the_stream, _standing, _scribble),
)
