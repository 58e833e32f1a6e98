"""What a segment's file says of itself: nothing in it is believed at attach."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from strangers import RING, forgotten, refused

from aiospin import _header, _layout
from aiospin._errors import LayoutMismatch
from aiospin._segment import Segment

pytestmark = pytest.mark.usefixtures("leaves_nothing")


@pytest.fixture
def strange() -> Iterator[Segment]:
    """A segment that this process holds, but whose handle leads through /proc as a stranger's would."""
    made = Segment.create(readers=2, capacity=RING)
    with forgotten(made):
        yield made
    made.drop()


@pytest.fixture
def strange_named(tmp_path: Path) -> Iterator[Segment]:
    """A named segment that this process holds, but will attach as a stranger would."""
    made = Segment.create(readers=2, capacity=RING, directory=tmp_path, name="q")
    with forgotten(made):
        yield made
    made.drop()


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("magic", 0, "not an aiospin segment: it begins with 0x0000000000000000"),
        ("word_bytes", 4, "damaged: word_bytes is 4, not 8"),
        ("segment_bytes", 1 << 62, "damaged: segment_bytes is"),
        ("capacity", 0, "damaged: its capacity is 0"),
        ("capacity", RING + 8, "damaged: its capacity is"),
        ("capacity", RING * 2, "damaged: segment_bytes is"),
        ("readers", 1025, "damaged: it claims 1025 readers"),
        ("readers", 1024, "damaged: control_offset is"),
        ("readers", 1, "its place was taken|damaged"),
        ("flags", 1 << 31, "damaged: unknown flags 0x80000000"),
        ("control_offset", 8, "damaged: control_offset is 8"),
        ("ring_offset", 8, "damaged: ring_offset is 8"),
        ("boot_id", bytes(16), "another machine, or before"),
        ("segment_inode", 1, "is a copy"),
        ("identity", bytes(16), "its place was taken by segment 000000000000"),
    ],
)
def test_a_scribbled_header_is_refused(strange: Segment, field: str, value: Any, reason: str) -> None:
    header = _header.read(strange.fd, "it")
    _header.write(strange.fd, replace(header, **{field: value}), [])
    refused(strange.ref, reason)
    _header.write(strange.fd, header, [])
    Segment.adopt(strange.ref).drop()


def test_another_layout_version_is_named_with_ours(strange: Segment) -> None:
    header = _header.read(strange.fd, "it")
    _header.write(strange.fd, replace(header, version=9), [])
    error = refused(strange.ref, "layout version 9; this aiospin reads version 1", LayoutMismatch)
    assert isinstance(error, LayoutMismatch) and (error.found, error.supported) == (9, 1)
    _header.write(strange.fd, header, [])


@pytest.mark.parametrize("word", range(0, _layout.HEADER_BYTES, 8))
def test_no_scribble_anywhere_in_the_header_gets_past(strange: Segment, word: int) -> None:
    before = os.pread(strange.fd, 8, word)
    os.pwrite(strange.fd, struct.pack("<Q", struct.unpack("<Q", before)[0] ^ (1 << 40)), word)
    creator = {56, 64, 88}  # pid, start and namespace of the creator are for people; nothing is computed from them
    if word in creator:
        Segment.adopt(strange.ref).drop()
    else:
        refused(strange.ref, "segment ")
    os.pwrite(strange.fd, before, word)


@pytest.mark.parametrize("length", [0, 8, _layout.HEADER_BYTES - 1, _layout.HEADER_BYTES, 4096, 65536])
def test_a_file_that_is_too_short_is_refused(strange_named: Segment, length: int) -> None:
    whole = os.fstat(strange_named.fd).st_size
    content = os.pread(strange_named.fd, whole, 0)
    os.ftruncate(strange_named.fd, length)
    refused(strange_named.ref, f"too short: {length} bytes")
    os.pwrite(strange_named.fd, content, 0)
