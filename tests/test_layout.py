"""The Python mirror of the layout and the C++ header draw the same bytes."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from aiospin import _layout

NATIVE = Path(__file__).resolve().parent.parent / "native"
LAYOUT_H = NATIVE / "shm" / "layout.h"
COMPILER = shutil.which("g++") or shutil.which("clang++") or shutil.which("c++")

READERS = (0, 1, 2, 3, 31, 220, 221, 223, 224, 1024)

# C++ expression -> what Python says it is
EXPECTED = {
    "kMagic": _layout.MAGIC,
    "kLayoutVersion": _layout.LAYOUT_VERSION,
    "kMaxReaders": _layout.MAX_READERS,
    "kPage": _layout.PAGE,
    "kRingAlign": _layout.RING_ALIGN,
    "kLine": _layout.LINE,
    "kBellsOffset": _layout.BELLS_OFFSET,
    "kChecksum": _layout.HEADER_CHECKSUM,
    "kPresent": _layout.SEAT_PRESENT,
    "kVacated": _layout.SEAT_VACATED,
    "kLight": _layout.SEAT_LIGHT,
    "kHasChecksum": _layout.SLOT_CHECKSUM,
    "kSlotAlign": _layout.SLOT_ALIGN,
    "kLargestMessage": _layout.LARGEST_MESSAGE,
    "kFarthest": _layout.FARTHEST,
    "kSlotHeader": _layout.SLOT_HEADER_BYTES,
    "sizeof(Word)": _layout.WORD_BYTES,
    "sizeof(Header)": _layout.HEADER_BYTES,
    "sizeof(BellIdentity)": _layout.BELL_IDENTITY.size,
    "sizeof(Seat)": _layout.SEAT_BYTES,
    "sizeof(Control)": _layout.CONTROL_BYTES,
    "sizeof(ReaderLines)": _layout.READER_BYTES,
    "sizeof(Gate)": _layout.GATE_BYTES,
    "sizeof(SlotHeader)": _layout.SLOT_HEADER_BYTES,
    "sizeof(JournalEntry)": _layout.JOURNAL_ENTRY.size,
    "sizeof(JournalLine::entry)": _layout.JOURNAL_ENTRY.size * _layout.JOURNAL_ENTRIES,
    "offsetof(Seat, state)": _layout.SEAT_STATE,
    "kTenureShift": _layout.SEAT_TENURE_SHIFT,
    "offsetof(Seat, pid)": _layout.SEAT_PID,
    "offsetof(Seat, start)": _layout.SEAT_START,
    "offsetof(Seat, pid_namespace)": _layout.SEAT_PID_NAMESPACE,
    "offsetof(Control, owner.shutdown)": _layout.CONTROL_SHUTDOWN,
    "offsetof(Control, published)": _layout.CONTROL_PUBLISHED,
    "offsetof(Control, journal)": _layout.CONTROL_JOURNAL,
    "offsetof(Control, room.needed)": _layout.CONTROL_ROOM_NEEDED,
    "offsetof(Control, room.epoch)": _layout.CONTROL_ROOM_EPOCH,
    "offsetof(Control, writer)": _layout.CONTROL_WRITER_SEAT,
    "offsetof(Control, writer.closed)": _layout.CONTROL_WRITER_CLOSED,
    "offsetof(ReaderLines, released)": _layout.READER_RELEASED,
    "offsetof(ReaderLines, park)": _layout.READER_PARK_EPOCH,
    "offsetof(ReaderLines, park.stay)": _layout.READER_STAY,
    "offsetof(ReaderLines, seat)": _layout.READER_SEAT,
    "offsetof(ReaderLines, seat.acquired)": _layout.READER_ACQUIRED,
    "offsetof(Gate, gate)": _layout.GATE_GATE,
    "offsetof(Gate, start)": _layout.GATE_START,
    "offsetof(Gate, rang_at)": _layout.GATE_RANG_AT,
    **{f"control_offset({n})": _layout.control_offset(n) for n in READERS},
    **{f"gates_offset({n})": _layout.gates_offset(n) for n in READERS},
    **{f"ring_offset({n})": _layout.ring_offset(n) for n in READERS},
    **{f"stride({n})": _layout.stride(n) for n in (0, 1, 63, 64, 65, 1 << 30)},
}

# The order of the header's fields, as struct formats spell them
FIELDS = {"std::uint64_t": "Q", "std::uint32_t": "I", "std::uint8_t[16]": "16s", "std::uint64_t[3]": "24x"}


def fields_of(struct_name: str) -> str:
    """The struct format that the C++ declaration of a plain struct spells."""
    body = re.search(rf"struct (?:alignas\(\w+\) )?{struct_name} {{(.*?)\n}};", LAYOUT_H.read_text(), re.DOTALL)
    assert body is not None, f"no struct {struct_name} in {LAYOUT_H}"
    declared = re.findall(r"^\s*(std::\w+) \w+(\[\d+\])?;", body[1], re.MULTILINE)
    return "<" + "".join(FIELDS[kind + array] for kind, array in declared)


def test_the_structs_that_python_packs_have_the_fields_of_the_header() -> None:
    assert fields_of("Header") == _layout.HEADER.format
    assert fields_of("BellIdentity") == _layout.BELL_IDENTITY.format
    assert fields_of("SlotHeader") == _layout.SLOT_HEADER.format


def test_what_the_header_asserts_of_itself_holds_in_python() -> None:
    asserted = re.findall(r"(offsetof\(\w+, \w+\)|sizeof\(\w+\)) == (\d+)", LAYOUT_H.read_text())
    known = [(expression, int(value)) for expression, value in asserted if expression in EXPECTED]
    assert len(known) == 10
    assert known == [(expression, EXPECTED[expression]) for expression, _ in known]


if COMPILER is not None:

    def test_a_compiler_sees_the_same_numbers(tmp_path: Path) -> None:
        lines = "\n".join(f'  std::printf("%s=%llu\\n", "{e}", (unsigned long long)({e}));' for e in EXPECTED)
        source = tmp_path / "layout.cpp"
        source.write_text(
            f'#include "shm/layout.h"\n#include <cstdio>\nusing namespace aiospin;\nusing namespace aiospin::shm;\n'
            f"int main() {{\n{lines}\n}}\n"
        )
        program = tmp_path / "layout"
        flags = ["-std=c++20", "-Wno-invalid-offsetof", f"-I{NATIVE}"]
        subprocess.run([str(COMPILER), *flags, str(source), "-o", str(program)], check=True)
        printed = subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout
        seen = {name: int(value) for name, value in (line.split("=") for line in printed.splitlines())}
        assert seen == EXPECTED


def test_every_line_group_begins_on_a_line_of_its_own() -> None:
    for readers in READERS:
        assert _layout.control_offset(readers) % _layout.PAGE == 0
        assert _layout.ring_offset(readers) % _layout.RING_ALIGN == 0
        for rank in range(min(readers, 3)):
            assert _layout.reader_offset(readers, rank) % _layout.LINE == 0
        assert _layout.gates_offset(readers) + _layout.GATE_BYTES * readers <= _layout.ring_offset(readers)


def test_roles_count_from_the_writer() -> None:
    assert [_layout.role_name(role) for role in range(3)] == ["writer", "reader 0", "reader 1"]
    assert [_layout.role_rank(role) for role in range(3)] == [None, 0, 1]
    assert [_layout.reader_role(rank) for rank in range(2)] == [1, 2]
