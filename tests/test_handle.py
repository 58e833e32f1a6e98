"""Handles: what goes round comes round, and whatever else is refused by name."""

from __future__ import annotations

import base64
import json
import zlib
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiospin import _layout
from aiospin._errors import AttachError, LayoutMismatch
from aiospin._handle import Handle, SegmentRef

REF = SegmentRef(
    pid=4711,
    start=123456,
    boot_id=bytes(range(16)),
    pid_namespace=4026531836,
    segment_fd=3,
    bell_fds=(5, 6, 7),
    device=1,
    inode=1028,
    identity=bytes(range(16, 32)),
    readers=2,
    path=None,
)
HANDLE = Handle(REF, 2, "bytes")
FIELDS = {"role": 0, "codec": 1, "pid": 2, "boot": 4, "bells": 7, "identity": 10, "readers": 11, "path": 12}


def forge(body: str, version: object = _layout.LAYOUT_VERSION) -> str:
    """A handle around any body, with a checksum that fits."""
    return f"aiospin-{version}.{body}.{zlib.crc32(body.encode()):08x}"


def body_of(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def fields_of(handle: Handle) -> list[Any]:
    body = str(handle).split(".")[1]
    fields: list[Any] = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    return fields


@pytest.mark.parametrize("ref", [REF, replace(REF, path="/dev/shm/aiospin-0/ünï", bell_fds=())])
@pytest.mark.parametrize("role", [0, 1, 2])
def test_a_handle_survives_its_text(ref: SegmentRef, role: int) -> None:
    handle = Handle(ref, role, "msgpack")
    assert Handle.parse(str(handle)) == handle
    assert Handle.parse(f"  {handle}\n") == handle


def test_the_text_is_one_word_for_shells_and_urls() -> None:
    text = str(Handle(replace(REF, path="/a b/'\"$(x)", bell_fds=()), 0, "bytes"))
    assert set(text) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


def test_every_truncation_is_refused() -> None:
    text = str(HANDLE)
    for length in range(len(text)):
        with pytest.raises(AttachError):
            Handle.parse(text[:length])


def test_every_altered_character_is_refused() -> None:
    text = str(HANDLE)
    for place, character in enumerate(text):
        with pytest.raises(AttachError):
            Handle.parse(text[:place] + ("x" if character != "x" else "y") + text[place + 1 :])


@given(st.text())
def test_garbage_is_refused(text: str) -> None:
    with pytest.raises(AttachError, match="is not a handle of aiospin"):
        Handle.parse(text)


@given(st.recursive(st.none() | st.integers() | st.text(), lambda inner: st.lists(inner, max_size=14)))
def test_garbage_with_a_good_checksum_is_refused(value: object) -> None:
    with pytest.raises(AttachError):
        Handle.parse(forge(body_of(value)))


@pytest.mark.parametrize("body", ["", "!!!!", "A", "_w", "WzFd\n"])
def test_a_body_that_does_not_decode_is_refused(body: str) -> None:
    with pytest.raises(AttachError):
        Handle.parse(forge(body))


def test_another_layout_version_is_named() -> None:
    with pytest.raises(
        LayoutMismatch, match=f"version 7; this aiospin reads version {_layout.LAYOUT_VERSION}"
    ) as caught:
        Handle.parse(forge("whatever", version=7))
    assert (caught.value.found, caught.value.supported) == (7, _layout.LAYOUT_VERSION)


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("role", 3, r"rank 2 is out of range: the segment has 2 readers"),
        ("role", -1, r"its role is -1"),
        ("role", True, r"its role is True"),
        ("codec", 7, r"its codec is 7"),
        ("pid", "4711", r"its pid is '4711'"),
        ("pid", 1 << 64, r"its pid is 18446744073709551616"),
        ("boot", "00", r"its boot id is '00'"),
        ("boot", None, r"its boot id is None"),
        ("identity", "zz" * 16, r"its identity is 'zzzz"),
        ("readers", 1025, r"its readers is 1025"),
        ("readers", 3, r"it does not name 4 bells"),
        ("bells", [1, 2, "3"], r"not a descriptor number"),
        ("bells", [1, 2, 1 << 31], r"not a descriptor number"),
        ("bells", None, r"it does not name 3 bells"),
        ("path", "relative", r"its path is 'relative'"),
        ("path", "/a\0b", r"its path is"),
    ],
)
def test_a_field_out_of_range_is_named(field: str, value: object, reason: str) -> None:
    fields = fields_of(HANDLE)
    fields[FIELDS[field]] = value
    with pytest.raises(AttachError, match=reason):
        Handle.parse(forge(body_of(fields)))


@pytest.mark.parametrize("value", [None, 7, b"aiospin-1.x.y", HANDLE])
def test_what_is_no_text_is_a_type_error(value: object) -> None:
    with pytest.raises(TypeError, match="a handle is text, got"):
        Handle.parse(value)


def test_a_long_handle_is_not_repeated_whole() -> None:
    with pytest.raises(AttachError) as caught:
        Handle.parse("x" * 100_000)
    assert len(str(caught.value)) < 200
