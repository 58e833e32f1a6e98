"""Handles as a way in: what is in them, what unpickling one runs, and what becomes of those that nobody made."""

from __future__ import annotations

import base64
import io
import json
import os
import pickle
import pickletools
import zlib
from typing import Any

import pytest
from ends import RING

import aiospin
from aiospin import _host, _layout
from aiospin._errors import AttachError
from aiospin._handle import Handle, SegmentRef, restored

pytestmark = pytest.mark.usefixtures("leaves_nothing")


class Watching(pickle.Unpickler):
    """Unpickles, and remembers every name that was looked up."""

    def __init__(self, pickled: bytes) -> None:
        super().__init__(io.BytesIO(pickled))
        self.names: set[str] = set()

    def find_class(self, module: str, name: str) -> Any:
        self.names.add(f"{module}.{name}")
        return super().find_class(module, name)


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_unpickling_a_handle_calls_one_function_with_its_text(protocol: int) -> None:
    with aiospin.Queue[bytes](capacity=RING) as queue:
        handle = queue.reader(0).handle
        pickled = pickle.dumps(handle, protocol)
        watching = Watching(pickled)
        assert watching.load() == handle
        assert watching.names == {"aiospin._handle.restored"}
        calls = [opcode.name for opcode, _, _ in pickletools.genops(pickled)]
        assert calls.count("REDUCE") == 1 and not {"BUILD", "NEWOBJ", "NEWOBJ_EX", "INST", "OBJ"} & set(calls)
        aiospin.attach(pickle.loads(pickled)).close()


def test_unpickling_an_end_looks_up_nothing_but_this_package() -> None:
    with aiospin.Queue[bytes](readers=2, capacity=RING) as queue:
        for end in (queue.writer(), queue.reader(1)):
            watching = Watching(pickle.dumps(end, 5))
            watching.load().close()
            assert {name.split(".")[0] for name in watching.names} == {"aiospin"}, watching.names
            end.close()


def test_a_handle_says_only_what_everybody_may_know() -> None:
    """Numbers that /proc and the file itself show to whoever may attach, and a name. No key is among them."""
    with aiospin.Queue[bytes](capacity=RING) as queue:
        body = str(queue.reader(0).handle).split(".")[1]
        segment: Any = queue._segment
        status = os.fstat(segment.fd)
        assert json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4))) == [
            *(1, "bytes", os.getpid(), _host.start_time(os.getpid()), _host.boot_id().hex(), _host.pid_namespace()),
            *(segment.fd, [segment.bell(0), segment.bell(1)], status.st_dev, status.st_ino),
            *(os.pread(segment.fd, 16, 40).hex(), 1, None),
        ]


def made_by_hand(**fields: Any) -> Handle:
    """A Handle as a pickle can make one: without a constructor, around anything."""
    handle = Handle.__new__(Handle)
    vars(handle).update(fields)
    return handle


class Strange:
    """Stands where a segment's address belongs, and must not be asked for more than that."""

    def __getattr__(self, name: str) -> Any:
        if name == "hex":
            raise AttributeError(name)
        return self


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"segment": None, "role": 0, "codec": "bytes"},
        {"segment": Strange(), "role": 0, "codec": "bytes"},
        {"segment": SegmentRef.__new__(SegmentRef), "role": 0, "codec": "bytes"},
        {"segment": "text", "role": 0, "codec": "bytes"},
    ],
    ids=["empty", "nothing", "strange", "hollow", "text"],
)
def test_a_handle_put_together_by_hand_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(AttachError, match="does not hold what a handle of aiospin holds"):
        aiospin.attach(made_by_hand(**fields))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"role": "1"}, "its role is '1'"),
        ({"role": 1.0}, r"its role is 1\.0"),
        ({"role": 7}, "out of range"),
        ({"codec": None}, "its codec is None"),
        ({"codec": ["pickle"]}, "its codec is"),
    ],
)
def test_odd_fields_of_a_handle_are_named(change: dict[str, Any], reason: str) -> None:
    with aiospin.Queue[bytes](capacity=RING) as queue:
        with pytest.raises(AttachError, match=reason):
            aiospin.attach(
                made_by_hand(**{"segment": queue.reader(0).handle.segment, "role": 1, "codec": "bytes"} | change)
            )


@pytest.mark.parametrize("change", [{"pid": "1"}, {"inode": -1}, {"bell_fds": (1,)}, {"readers": True}, {"path": b"/"}])
def test_odd_fields_of_an_address_are_refused(change: dict[str, Any]) -> None:
    with aiospin.Queue[bytes](capacity=RING) as queue:
        handle = queue.reader(0).handle
        strange = SegmentRef.__new__(SegmentRef)
        vars(strange).update(vars(handle.segment) | change)
        with pytest.raises(AttachError):
            aiospin.attach(made_by_hand(segment=strange, role=1, codec="bytes"))


@pytest.mark.parametrize("value", [None, 7, b"aiospin-1.x.y", ["aiospin"]])
def test_a_pickle_that_restores_from_no_text_is_a_type_error(value: object) -> None:
    with pytest.raises(TypeError, match="a handle is text"):
        restored(value)


def sealed(raw: bytes) -> str:
    """A handle's text around any bytes, with a checksum that fits."""
    body = base64.urlsafe_b64encode(raw).decode().rstrip("=")
    return f"aiospin-{_layout.LAYOUT_VERSION}.{body}.{zlib.crc32(body.encode()):08x}"


@pytest.mark.parametrize("raw", [b"[" * 100_000, b'{"a":' * 100_000, b"1" * 100_000, b"\xff" * 10, b'"' + b"x" * 10**6])
def test_a_body_that_is_made_to_exhaust_is_refused(raw: bytes) -> None:
    with pytest.raises(AttachError) as caught:
        Handle.parse(sealed(raw))
    assert len(str(caught.value)) < 300


def test_long_fields_are_not_repeated_whole() -> None:
    for field in range(13):
        fields: list[Any] = [1, "bytes", 1, 1, "0" * 32, 1, 1, [1, 2], 1, 1, "0" * 32, 1, None]
        fields[field] = [["x" * 1000] * 10] * 10
        with pytest.raises(AttachError) as caught:
            Handle.parse(sealed(json.dumps(fields).encode()))
        assert len(str(caught.value)) < 500


def test_a_path_that_no_file_can_have_is_refused() -> None:
    fields = [1, "bytes", 1, 1, "0" * 32, 1, 1, [], 1, 1, "0" * 32, 1, "/\ud800"]
    with pytest.raises(AttachError, match="which no file can be called"):
        Handle.parse(sealed(json.dumps(fields).encode()))
    fields[-1] = "/" + "long" * 5000
    with pytest.raises(AttachError, match="File name too long"):
        aiospin.attach(sealed(json.dumps(fields).encode()))
