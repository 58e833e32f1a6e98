"""Objects as messages: what is pickled, what lies beside the pickle and where, and what damage is called."""

from __future__ import annotations

import copyreg
import itertools
import pickle
import struct
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import aiospin
from aiospin import _pages
from aiospin.compat.vllm import _wire
from aiospin.compat.vllm._loan import LEAST


@dataclass
class At:
    """A writer whose next slot begins there."""

    _cursor: int


class Slot:
    """One message, as a reader hands it out. `position` None: it came in pieces."""

    def __init__(self, message: bytes, position: int | None = 64) -> None:
        self.data = memoryview(bytearray(message)).toreadonly()
        self._position = position
        self.size = len(message)
        self.left = 0

    def keep(self) -> memoryview:
        return memoryview(bytearray(self.data))

    def __exit__(self, *of_an_exception: object) -> None:
        self.left += 1


def message(obj: object, position: int = 64) -> bytes:
    return b"".join(_wire.encode(obj, At(position - 64)))


def places(whole: bytes) -> list[tuple[int, int]]:
    return _wire._parsed(memoryview(whole))[1]


@pytest.mark.parametrize(
    "obj", [None, True, 0, -(1 << 100), 0.5, "text", b"bytes", (1, [2, {"3": {4}}]), bytearray(b"1")]
)
def test_small_objects_are_plain_pickles(obj: object) -> None:
    whole = message(obj)
    assert pickle.loads(whole) == obj
    slot: Any = Slot(whole)
    assert _wire.decode(slot, None) == obj and slot.left == 1


@pytest.mark.parametrize("position", [64, 4096, 4160, 12345 * 64])
def test_large_buffers_have_pages_of_their_own(position: int) -> None:
    obj = [np.full(size, size % 251, np.uint8) for size in (LEAST, 20000, LEAST + 1, 3 * LEAST + 77)]
    whole = message(obj, position)
    pages = []
    for (begin, size), array in zip(places(whole), obj, strict=True):
        assert whole[begin : begin + size] == array.tobytes()
        assert (position + begin) % (_pages.BYTES if size >= LEAST else 64) == 0
        if size >= LEAST:
            pages.append(range((position + begin) // _pages.BYTES, -(-(position + begin + size) // _pages.BYTES)))
    assert len(whole) + position >= pages[-1].stop * _pages.BYTES
    assert all(before.stop <= after.start for before, after in itertools.pairwise(pages))


@pytest.mark.parametrize("where", [64, None])
def test_what_is_decoded_can_be_written_where_the_original_could(where: int | None) -> None:
    fixed = np.arange(30000, dtype=np.uint16)
    fixed.flags.writeable = False
    obj = [np.arange(10), np.arange(30000, dtype=np.uint16), fixed, np.arange(2 * LEAST, dtype=np.uint8)]
    slot: Any = Slot(message(obj), where)
    found = _wire.decode(slot, None)
    assert [array.flags.writeable for array in found] == [True, True, False, True]
    assert all(np.array_equal(one, other) for one, other in zip(found, obj, strict=True))
    assert slot.left == 1


def test_an_array_that_is_not_contiguous_arrives_all_the_same() -> None:
    obj = np.arange(LEAST, dtype=np.uint8).reshape(1024, -1)[::2, 1::3]
    slot: Any = Slot(message(obj))
    assert np.array_equal(_wire.decode(slot, None), obj)


def test_what_pickling_raises_comes_out() -> None:
    with pytest.raises((AttributeError, pickle.PicklingError)):
        _wire.encode([lambda: None], 0)


def test_what_unpickling_raises_comes_out_and_the_slot_goes_back() -> None:
    slot: Any = Slot(message(np.arange(10))[:-3])
    with pytest.raises(Exception, match=r"trunc|ran out|MARK|data"):
        _wire.decode(slot, None)
    assert slot.left == 1


def begin_otherwise(whole: bytes) -> bytes:
    return b"\x07" + whole[1:]


def claim_many_buffers(whole: bytes) -> bytes:
    return whole[:8] + struct.pack("<I", 1 << 31) + whole[12:]


def claim_a_long_pickle(whole: bytes) -> bytes:
    return whole[:12] + struct.pack("<I", 1 << 31) + whole[16:]


def claim_a_long_buffer(whole: bytes) -> bytes:
    return whole[:24] + struct.pack("<Q", 1 << 62) + whole[32:]


def claim_a_far_buffer(whole: bytes) -> bytes:
    return whole[:16] + struct.pack("<Q", (1 << 64) - 8) + whole[24:]


@pytest.mark.parametrize("where", [64, None])
@pytest.mark.parametrize(
    "damage",
    [
        begin_otherwise,
        claim_many_buffers,
        claim_a_long_pickle,
        claim_a_long_buffer,
        claim_a_far_buffer,
        lambda whole: bytes(20000),
    ],
)
def test_what_is_no_message_is_refused(damage: Callable[[bytes], bytes], where: int | None) -> None:
    slot: Any = Slot(damage(message(np.arange(30000))), where)
    with pytest.raises(aiospin.CorruptSlot, match="message of"):
        _wire.decode(slot, None)
    assert slot.left == 1


@pytest.mark.parametrize("raw", [b"", b"\x01 and something that nobody has pickled"])
def test_small_messages_are_taken_for_pickles(raw: bytes) -> None:
    slot: Any = Slot(raw)
    with pytest.raises((EOFError, pickle.UnpicklingError)):
        _wire.decode(slot, None)
    assert slot.left == 1


def test_a_pickler_that_failed_leaves_nothing_in_the_next_message() -> None:
    with pytest.raises((AttributeError, pickle.PicklingError)):
        message([np.arange(30000), lambda: None])
    assert message([1]) == pickle.dumps([1], 5)


def test_a_pickler_forgets_what_it_has_pickled() -> None:
    obj = {1: Odd()}
    gone = weakref.ref(obj[1])
    message(obj)
    del obj
    assert gone() is None


class Odd:
    """Pickled by a reducer that was registered for everybody."""


def test_reducers_that_are_registered_for_everybody_hold_here_too(monkeypatch: pytest.MonkeyPatch) -> None:
    class Tensor:
        pass

    monkeypatch.setitem(copyreg.dispatch_table, Odd, lambda odd: (str, ("odd",)))
    for tensor in (None, Tensor):  # without torch, and with it
        monkeypatch.setattr(_wire, "tensor_type", lambda tensor=tensor: tensor)
        assert pickle.loads(message([Odd()])) == ["odd"]
