"""The bytes that every process of a queue shares, as Python sees them: a mirror of native/shm/layout.h.

Guarantee: pure numbers and arithmetic; a test compares each of them with the C++ header.
Assumption: little-endian, 64-bit words. All offsets are absolute file offsets in bytes unless the name says otherwise;
a name like READER_PARK_EPOCH is relative to the start of its line group.
"""

from __future__ import annotations

import struct
from typing import Final

MAGIC: Final = 0x004E4950534F4941  # "AIOSPIN\0"
LAYOUT_VERSION: Final = 1
WORD_BYTES: Final = 8
MAX_READERS: Final = 1024
PRESENCE: Final = MAX_READERS + 1  # the byte behind the roles: whoever has a named segment open shares its lock
PAGE: Final = 4096
RING_ALIGN: Final = 65536  # the largest page size in the field: the ring is mapped on its own
LINE: Final = 128

# Header and the table of bells behind it

HEADER: Final = struct.Struct("<QIIQQII16sQQ16sQQQQQ")
HEADER_BYTES: Final = HEADER.size
HEADER_CHECKSUM: Final = 1  # flags
BELLS_OFFSET: Final = 512
BELL_IDENTITY: Final = struct.Struct("<QQ")  # device, inode

# Seat: who holds a role; relative to the seat

SEAT_STATE: Final = 0  # tenure << SEAT_TENURE_SHIFT | flags
SEAT_PID: Final = 8
SEAT_START: Final = 16
SEAT_PID_NAMESPACE: Final = 24
SEAT_BYTES: Final = 32
SEAT_TENURE_SHIFT: Final = 8
SEAT_PRESENT: Final = 1  # flags
SEAT_LIGHT: Final = 2
SEAT_VACATED: Final = 4

# Control: relative to control_offset(readers)

CONTROL_SHUTDOWN: Final = 0
CONTROL_PUBLISHED: Final = 128
CONTROL_JOURNAL: Final = 256
CONTROL_ROOM_NEEDED: Final = 384
CONTROL_ROOM_EPOCH: Final = 392
CONTROL_WRITER_SEAT: Final = 512
CONTROL_WRITER_CLOSED: Final = CONTROL_WRITER_SEAT + SEAT_BYTES
CONTROL_BYTES: Final = 640

JOURNAL_ENTRY: Final = struct.Struct("<QQ")  # cursor, sequence
JOURNAL_ENTRIES: Final = 2

# ReaderLines: relative to reader_offset(readers, rank)

READER_RELEASED: Final = 0
READER_PARK_EPOCH: Final = 128
READER_STAY: Final = 136
READER_SEAT: Final = 256
READER_ACQUIRED: Final = READER_SEAT + SEAT_BYTES
READER_BYTES: Final = 384

# Gate: relative to gate_offset(readers, rank)

GATE_GATE: Final = 0
GATE_START: Final = 8
GATE_RANG_AT: Final = 16
GATE_BYTES: Final = 32

# Slot: in the ring

SLOT_HEADER: Final = struct.Struct("<QQQQII24x")  # sequence, total, offset, size, flags, checksum
SLOT_HEADER_BYTES: Final = SLOT_HEADER.size
SLOT_ALIGN: Final = 64
LARGEST_MESSAGE: Final = 1 << 47  # no process has room for more: damage
FARTHEST: Final = 1 << 63  # no cursor gets that far in 29 years at 10 GB/s: damage
SLOT_CHECKSUM: Final = 1  # flags

WRITER: Final = 0  # the role; the reader of rank r has role 1 + r


def reader_role(rank: int) -> int:
    """The role of the reader of that rank."""
    return 1 + rank


def role_rank(role: int) -> int | None:
    """The rank of a reader's role, None for the writer's."""
    return None if role == WRITER else role - 1


def role_name(role: int) -> str:
    """What errors and log lines call a role."""
    return "writer" if role == WRITER else f"reader {role - 1}"


def align_up(value: int, step: int) -> int:
    """The smallest multiple of `step` that is not below `value`."""
    return (value + step - 1) // step * step


def stride(payload: int) -> int:
    """Ring bytes that a slot with `payload` bytes takes, header included."""
    return align_up(SLOT_HEADER_BYTES + payload, SLOT_ALIGN)


def bell_offset(role: int) -> int:
    """Where the identity of a role's bell lies."""
    return BELLS_OFFSET + BELL_IDENTITY.size * role


def control_offset(readers: int) -> int:
    """Where Control begins."""
    return align_up(bell_offset(readers + 1), PAGE)


def reader_offset(readers: int, rank: int) -> int:
    """Where the lines of the reader of that rank begin."""
    return control_offset(readers) + CONTROL_BYTES + READER_BYTES * rank


def gates_offset(readers: int) -> int:
    """Where the writer's gates begin."""
    return reader_offset(readers, readers)


def gate_offset(readers: int, rank: int) -> int:
    """Where the gate of that rank lies."""
    return gates_offset(readers) + GATE_BYTES * rank


def ring_offset(readers: int) -> int:
    """Where the ring begins; the control area ends there."""
    return align_up(gate_offset(readers, readers), RING_ALIGN)


def segment_bytes(readers: int, capacity: int) -> int:
    """The size of the whole file."""
    return ring_offset(readers) + capacity


def seat_offset(readers: int, role: int) -> int:
    """Where the seat of a role lies."""
    if role == WRITER:
        return control_offset(readers) + CONTROL_WRITER_SEAT
    return reader_offset(readers, role - 1) + READER_SEAT
