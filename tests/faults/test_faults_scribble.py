"""Shared memory that somebody scribbled on: an error that says where, never a crash and never wrong bytes."""

from __future__ import annotations

import os
from typing import Any

import pytest
from ends import RING, content, ends, fill
from programs import Program

import aiospin
from aiospin import _layout

pytestmark = pytest.mark.usefixtures("leaves_nothing")

FIELDS = ("sequence", "total", "offset", "size", "flags", "checksum")


def patch_slot(segment: Any, position: int, **changes: int) -> None:
    """Overwrite fields of the slot header at a ring position."""
    at = _layout.ring_offset(segment.readers) + position % segment.capacity
    header = os.pread(segment.fd, _layout.SLOT_HEADER_BYTES, at)
    values = dict(zip(FIELDS, _layout.SLOT_HEADER.unpack(header), strict=True)) | changes
    os.pwrite(segment.fd, _layout.SLOT_HEADER.pack(*values.values()), at)


@pytest.mark.parametrize(
    "changes",
    [
        {"sequence": 5},
        {"sequence": 2**64 - 1},
        {"size": RING},
        {"size": 2**64 - 1},
        {"size": 2**63, "total": 2**63},
        {"offset": 1},
        {"offset": 2**64 - 64, "size": 128, "total": 64},
        {"total": 10},
    ],
    ids=str,
)
def test_a_slot_that_cannot_be(changes: dict[str, int]) -> None:
    with ends() as (queue, writer, (reader,)):
        writer.put_many([content(0, 100), content(1, 100), content(2, 100)])
        assert reader.get() == content(0, 100)
        patch_slot(queue._segment, 192, **changes)
        for _ in range(2):
            with pytest.raises(aiospin.CorruptSlot, match=r"\d"):
                reader.get()
        with pytest.raises(aiospin.CorruptSlot):
            reader.try_acquire_read()


def test_a_checksum_finds_one_changed_bit() -> None:
    with ends(checksum=True) as (queue, writer, (reader,)):
        writer.put_many([content(0, 100), content(1, 100)])
        segment = queue._segment
        assert segment is not None
        at = _layout.ring_offset(1) + 192 + 64 + 50
        os.pwrite(segment.fd, bytes([os.pread(segment.fd, 1, at)[0] ^ 4]), at)
        assert reader.get() == content(0, 100)
        with pytest.raises(aiospin.CorruptSlot):
            reader.get()


@pytest.mark.parametrize("published", [1, 63, 191, 2**64 - 64, 2**63, RING + 64 + 192, 2**64 - 1])
def test_a_published_cursor_that_cannot_be(published: int) -> None:
    with ends() as (queue, writer, (reader,)):
        writer.put(content(0, 100))
        assert reader.get() == content(0, 100)
        segment = queue._segment
        assert segment is not None
        segment.mapping.store(_layout.control_offset(1) + _layout.CONTROL_PUBLISHED, published)
        with pytest.raises(aiospin.CorruptSlot, match=r"\d"):
            reader.get()


@pytest.mark.parametrize("released", [2**64 - 1, 2**63, RING * 10])
def test_a_released_cursor_that_cannot_be(released: int) -> None:
    with ends() as (queue, writer, (_reader,)):
        count = fill(writer)
        segment = queue._segment
        assert segment is not None and count > 0
        segment.mapping.store(_layout.reader_offset(1, 0) + _layout.READER_RELEASED, released)
        with pytest.raises(aiospin.CorruptSlot, match="writer"):
            writer.put(bytes(1000), timeout=30)


def test_a_takeover_of_a_scribbled_journal() -> None:
    with ends() as (queue, writer, (_reader,)):
        writer.put(b"x")
        writer.detach()
        segment = queue._segment
        assert segment is not None
        segment.mapping.store(_layout.control_offset(1) + _layout.CONTROL_PUBLISHED, 64)
        with queue.reader(0), pytest.raises(aiospin.CorruptSlot):
            queue.writer().put(b"y")


def test_a_segment_that_became_too_short_or_not_ours() -> None:
    """Damage to the header is found at attach, by a process that was not there before."""
    program = """
        for _ in range(5):
            hear()
            try:
                aiospin.attach(arguments)
            except aiospin.AttachError as error:
                say([type(error).__name__, str(error)])
    """
    with ends() as (queue, _, (reader,)):
        segment = queue._segment
        assert segment is not None
        whole = os.pread(segment.fd, 512, 0)
        with Program(program, str(reader.handle)) as child:
            for place, size in ((0, 8), (8, 4), (12, 4), (24, 8), (40, 16)):
                os.pwrite(segment.fd, bytes(size), place)
                child.say()
                kind, text = child.hear()
                assert kind in ("AttachError", "LayoutMismatch") and reader.handle.segment.name[:10] in text, text
                os.pwrite(segment.fd, whole, 0)
            child.finish()
