"""Shared memory that cannot be true is a CorruptSlot that names the value, never a wild read."""

from __future__ import annotations

import pytest
from fallback_rig import PAGE, content, rig

from aiospin import _layout
from aiospin._errors import CorruptSlot

FAR = (1 << 64) - 64


@pytest.mark.parametrize("published", [64, 130, PAGE + 128 + 64, FAR])
def test_published_cursor(published: int) -> None:
    with rig() as queue:
        writer, reader = queue.writer(), queue.reader()
        writer.put(content(0, 64))
        reader.get()
        queue.set_control(_layout.CONTROL_PUBLISHED, published)
        for _ in range(2):
            with pytest.raises(CorruptSlot, match=str(published)):
                reader.get()
        assert reader._ready()


@pytest.mark.parametrize(
    "fields",
    [
        {"sequence": 5},
        {"size": 65},
        {"size": FAR},
        {"size": PAGE, "total": PAGE},
        {"size": 200, "total": 200},
        {"size": 0},
        {"offset": 64, "total": 64},
        {"offset": 64, "total": 128},
        {"offset": FAR},
    ],
)
def test_slot_header(fields: dict[str, int]) -> None:
    with rig() as queue:
        writer, reader = queue.writer(), queue.reader()
        writer.put_many([b"ok", content(1, 64)])
        assert reader.get() == b"ok"
        queue.patch_slot(_layout.stride(2), **fields)
        for _ in range(2):
            with pytest.raises(CorruptSlot, match=str(_layout.stride(2))):
                reader.try_acquire_read()


def test_the_first_slot_sets_the_sequence() -> None:
    with rig() as queue:
        writer = queue.writer()
        writer.put_many([b"a", b"b"])
        queue.patch_slot(0, sequence=7)
        reader = queue.reader()
        assert reader.get() == b"a"
        with pytest.raises(CorruptSlot, match="sequence 1; 8"):
            reader.get()


def test_what_came_before_the_bad_slot_is_delivered() -> None:
    with rig() as queue:
        writer, reader = queue.writer(), queue.reader()
        writer.put_many([b"a", b"b", b"c"])
        queue.patch_slot(2 * _layout.stride(1), sequence=9)
        assert reader.get_many(3) == [b"a", b"b"]
        with pytest.raises(CorruptSlot):
            reader.get_many(3)


def test_fragments_must_go_on_from_each_other() -> None:
    with rig() as queue:
        writer, reader = queue.writer(), queue.reader()
        with pytest.raises(TimeoutError):
            writer.put(content(0, 2 * PAGE), timeout=0)
        queue.patch_slot(2 * PAGE // 4, offset=1)
        with pytest.raises(CorruptSlot, match="does not go on"):
            reader.get()


def test_checksum() -> None:
    with rig(checksum=True) as queue:
        writer, reader = queue.writer(), queue.reader()
        writer.put(content(0, 100))
        assert reader.get() == content(0, 100)
        writer.put(content(1, 100))
        queue.mapping.writable_ring()[_layout.stride(100) + 64] ^= 1
        with pytest.raises(CorruptSlot, match="checksum"):
            reader.get()


@pytest.mark.parametrize("released", [128 + 64, FAR])
def test_a_reader_cannot_have_released_what_was_not_published(released: int) -> None:
    with rig() as queue:
        writer = queue.writer()
        writer.put(content(0, 64))
        queue.set_lines(_layout.READER_RELEASED, released)
        with pytest.raises(CorruptSlot, match=f"reader 0 says it released up to {released}"):
            writer.put(bytes(PAGE - 64))


def test_a_reader_cannot_be_more_than_a_ring_behind() -> None:
    with rig() as queue:
        writer, reader = queue.writer(), queue.reader()
        for sequence in range(8):
            writer.put(content(sequence, 1000))
            reader.get()
        queue.set_lines(_layout.READER_RELEASED, 64)
        with pytest.raises(CorruptSlot, match="up to 64"):
            writer.put_many([bytes(1000)] * 4, timeout=0)


def test_a_journal_that_knows_nothing_of_the_cursor() -> None:
    with rig() as queue:
        queue.writer().put(b"x")
        queue.set_control(_layout.CONTROL_PUBLISHED, 4096)
        with pytest.raises(CorruptSlot, match="4096"):
            queue.writer().put(b"y")
