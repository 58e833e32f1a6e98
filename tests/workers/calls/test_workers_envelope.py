"""Messages and bodies without any process: what was packed is what is parsed, and damage is told as what it is."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiospin.workers import _body, _failure
from aiospin.workers._envelope import CorruptMessage, Envelope, Kind, pack

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)
BUFFERS = st.lists(st.binary(max_size=300), max_size=5)

EXAMPLES = settings(max_examples=50, deadline=None)


def joined(pieces: list[Any]) -> bytes:
    return b"".join(bytes(piece) for piece in pieces)


@EXAMPLES
@given(
    kind=st.sampled_from(Kind),
    number=st.integers(0, 2**64 - 1),
    name=st.text(max_size=50),
    body=st.binary(max_size=300),
    buffers=BUFFERS,
    flags=st.integers(0, 255),
    deadline=st.integers(0, 2**64 - 1),
)
def test_a_message_is_parsed_as_it_was_packed(
    kind: Kind, number: int, name: str, body: bytes, buffers: list[bytes], flags: int, deadline: int
) -> None:
    data = joined(pack(kind, number, name.encode(), body, buffers, flags=flags, deadline_ns=deadline))
    message = Envelope.parse(memoryview(data))
    assert message[:5] == (kind, flags, number, deadline, name)
    assert message.body == body
    assert [bytes(buffer) for buffer in message.buffers] == buffers
    start = numpy.frombuffer(data, "u1").ctypes.data
    for buffer in message.buffers:
        if len(buffer):
            assert (numpy.frombuffer(buffer, "u1").ctypes.data - start) % 64 == 0


@EXAMPLES
@given(st.binary(max_size=200))
def test_no_bytes_are_worse_than_corrupt(data: bytes) -> None:
    with contextlib.suppress(CorruptMessage):
        Envelope.parse(memoryview(data))


@EXAMPLES
@given(name=st.text(max_size=20), body=st.binary(max_size=50), buffers=BUFFERS, harm=st.data())
def test_a_damaged_message_is_read_or_corrupt(
    name: str, body: bytes, buffers: list[bytes], harm: st.DataObject
) -> None:
    """Whatever is read lies within the message."""
    data = bytearray(joined(pack(Kind.CALL, 1, name.encode(), body, buffers)))
    for _ in range(harm.draw(st.integers(1, 4))):
        data[harm.draw(st.integers(0, min(len(data), 200) - 1))] = harm.draw(st.integers(0, 255))
    del data[harm.draw(st.integers(0, len(data))) :]
    try:
        message = Envelope.parse(memoryview(data))
    except CorruptMessage:
        return
    assert len(message.body) + sum(map(len, message.buffers)) <= len(data)


@pytest.mark.parametrize("size", [0, 1, 31])
def test_what_has_no_head_is_corrupt(size: int) -> None:
    with pytest.raises(CorruptMessage, match=f"a message of {size} bytes has no head"):
        Envelope.parse(memoryview(bytes(size)))


@EXAMPLES
@given(PLAIN)
def test_plain_objects_come_back_equal(value: Any) -> None:
    codec = _body.find("msgpack")
    for sent in (value, [value, numpy.arange(3)]):
        body, buffers = codec.encode(sent)
        back = codec.decode(memoryview(body), [memoryview(bytes(buffer)) for buffer in buffers])
        assert back == value if sent is value else (back[0] == value and back[1].tolist() == [0, 1, 2])


@EXAMPLES
@given(value=PLAIN, harm=st.data())
def test_a_damaged_body_is_read_or_refused(value: Any, harm: st.DataObject) -> None:
    codec = _body.find("msgpack")
    structured = numpy.zeros(2, [("a", "i4"), ("b", "f8", (2,))])
    body, buffers = codec.encode([value, numpy.arange(6.0).reshape(2, 3), structured, memoryview(b"12"), b"x" * 5000])
    damaged = bytearray(body)
    for _ in range(harm.draw(st.integers(1, 3))):
        damaged[harm.draw(st.integers(0, len(damaged) - 1))] = harm.draw(st.integers(0, 255))
    kept = buffers[: harm.draw(st.integers(0, len(buffers)))]
    with contextlib.suppress(CorruptMessage):
        codec.decode(memoryview(bytes(damaged)), [memoryview(bytes(buffer)) for buffer in kept])


@EXAMPLES
@given(st.binary(max_size=100))
def test_no_body_is_worse_than_corrupt(body: bytes) -> None:
    with contextlib.suppress(CorruptMessage):
        _body.find("msgpack").decode(memoryview(body), [memoryview(b"12345678")])


@EXAMPLES
@given(args=st.lists(PLAIN | st.just(object()), max_size=3), state=st.dictionaries(st.text(), PLAIN, max_size=3))
def test_an_exception_is_told_whatever_it_holds(args: list[Any], state: dict[str, Any]) -> None:
    error = ValueError(*args)
    vars(error).update(state)
    revived = _failure.revive(_failure.describe(error))
    assert isinstance(revived, (ValueError, _failure.RemoteError))
    assert isinstance(revived.__cause__, _failure.RemoteTraceback)
    if not any(type(each) is object for each in args):
        assert (str(revived) if isinstance(revived, ValueError) else revived.text) == str(error)
