"""What travels: bytes and buffers of any size, arrays of every kind, plain objects; and what travels in place."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import AsyncIterator, Mapping
from typing import Any

import numpy
import pytest
import pytest_asyncio
from stage import settle
from weigher import Weigher, WeigherLooped, describe, digest, in_ring, place

from aiospin.workers import WorkerGroup, _body

pytestmark = pytest.mark.asyncio(loop_scope="module")

RING = 1 << 18
IN_PLACE = {"in ring": True, "read-only": True, "off": 0}
Weighers = Mapping[str, WorkerGroup[Any]]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def weighers() -> AsyncIterator[Weighers]:
    async with (
        WorkerGroup(Weigher, 2, capacity=RING) as plain,
        WorkerGroup(WeigherLooped, 1, capacity=RING) as looped,
        WorkerGroup(Weigher, 1, capacity=RING, codec="pickle") as pickling,
    ):
        yield {"sync": plain, "async": looped, "pickle": pickling}


@pytest_asyncio.fixture(loop_scope="module", params=["sync", "async", "pickle"])
async def weigher(weighers: Weighers, request: pytest.FixtureRequest) -> AsyncIterator[WorkerGroup[Any]]:
    """Of each kind and codec."""
    group = weighers[request.param]
    yield group
    await settle(group)


@pytest_asyncio.fixture(loop_scope="module")
async def plain(weighers: Weighers) -> AsyncIterator[WorkerGroup[Any]]:
    """Sync, msgpack."""
    yield weighers["sync"]
    await settle(weighers["sync"])


def noise(size: int) -> bytes:
    return numpy.random.default_rng(size).bytes(size)


SIZES = (0, 1, 63, 64, 4095, 4096, 65535, 65536, 65537, RING // 2 - 300, RING // 2, RING - 1, RING, RING + 1, 5 * RING)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
async def test_bytes_of_any_size_travel_both_ways(weighers: Weighers, kind: Any) -> None:
    for name, weigher in weighers.items():
        for size in SIZES:
            sent = bytes(noise(size)) if name == "pickle" else kind(noise(size))
            assert (await weigher.call_one(0, "describe", sent))["digest"] == digest(bytes(sent)), (name, size)
            assert bytes(await weigher.call_one(0, "echo", sent)) == bytes(sent), (name, size)
            assert [bytes(of_one) for of_one in await weigher.call("echo", sent)] == [sent] * weigher.size
        parts = [noise(10), noise(RING // 2), noise(2 * RING), b"x"]
        assert [bytes(part) async for part in weigher.stream(0, "echo_each", parts)] == parts


async def test_bytes_stay_bytes_and_views_are_views(plain: WorkerGroup[Any]) -> None:
    for size in (10, 5000):
        assert type(await plain.call_one(0, "echo", noise(size))) is bytes
        for kind in (bytearray, memoryview):
            assert type(await plain.call_one(0, "echo", kind(noise(size)))) is memoryview


async def test_a_view_of_numbers_travels_as_its_bytes(plain: WorkerGroup[Any]) -> None:
    numbers: Any = numpy.arange(12.0).reshape(3, 4).data
    assert bytes(await plain.call_one(0, "echo", numbers)) == numbers.tobytes()
    assert bytes(await plain.call_one(0, "echo", numpy.zeros((0, 3)).data)) == b""


async def test_a_view_with_gaps_is_refused(plain: WorkerGroup[Any]) -> None:
    with pytest.raises(TypeError, match="C-contiguous"):
        await plain.call_one(0, "echo", memoryview(noise(10))[::2])


STRUCTURED = numpy.dtype([("a", "<i4"), ("b", [("c", ">f8"), ("d", "S3")]), ("e", "u1", (2, 3))])
ARRAYS = {
    **{
        f"type {code}": numpy.arange(1, 13).astype(code).reshape(3, 4)
        for code in numpy.typecodes["All"]
        if code not in "OMmSUVac"
    },
    "bytes": numpy.array([[b"a", b"bcd"]]),
    "text": numpy.array(["a", "b\u00e9d"]),
    "void": numpy.array([b"12", b"34"], "V2"),
    "dates": numpy.array(["2020-01-01", "NaT"], "M8[ns]"),
    "days": numpy.array(["2020-01-01"], "M8[D]"),
    "spans": numpy.array([1, 2], "m8[25s]"),
    "big-endian": numpy.arange(5, dtype=">i2"),
    "structured": numpy.frombuffer(noise(STRUCTURED.itemsize * 2), STRUCTURED),
    "aligned": numpy.ones(2, numpy.dtype([("a", "u1"), ("b", "f8")], align=True)),
    "no fields": numpy.zeros(2, numpy.dtype([("a", "i4"), ("b", "i4")]))[["b"]],
    "0-d": numpy.array(5.5),
    "empty": numpy.zeros(0),
    "empty in one way": numpy.zeros((3, 0, 2), "i2"),
    "no width": numpy.zeros(3, "S0"),
    "Fortran": numpy.asfortranarray(numpy.arange(12).reshape(3, 4)),
    "strided": numpy.arange(24).reshape(4, 6)[::2, ::3],
    "backwards": numpy.arange(5)[::-1],
    "broadcast": numpy.broadcast_to(numpy.arange(3), (4, 3)),
    "transposed": numpy.arange(24).reshape(2, 3, 4).transpose(2, 0, 1),
    "many dimensions": numpy.arange(2**5).reshape((1, 2) * 5),
    "read-only": numpy.frombuffer(b"12345678", "i4"),
    "large": numpy.arange(RING, dtype="f8"),
}


@pytest.mark.parametrize("which", ARRAYS)
async def test_arrays_of_every_kind_travel_both_ways(weigher: WorkerGroup[Any], which: str) -> None:
    sent = ARRAYS[which]
    there = await weigher.call_one(0, "describe", sent)
    assert there == {**describe(sent), "digest": digest(sent.tobytes())}
    for back in (await weigher.call_one(0, "echo", sent), (await weigher.call("echo", [sent]))[0][0]):
        assert type(back) is numpy.ndarray
        assert (back.dtype, back.shape) == (sent.dtype, sent.shape)
        assert back.tobytes() == sent.tobytes()


async def test_the_order_of_bytes_is_kept(plain: WorkerGroup[Any]) -> None:
    """Of dates, too, where NumPy's own pickling does not."""
    for dtype in (">M8[D]", "<M8[D]", ">c16", ">U3"):
        sent = numpy.array([1, 2], "i8").astype(dtype)
        back = await plain.call_one(0, "echo", sent)
        assert (back.dtype.str, back.tobytes()) == (sent.dtype.str, sent.tobytes())


@pytest.mark.parametrize("dtype", ["O", [("a", "O")]])
async def test_arrays_of_objects_are_refused_without_pickle(weighers: Weighers, dtype: Any) -> None:
    with pytest.raises(TypeError, match="holds Python objects; a group with codec='pickle'"):
        await weighers["sync"].call_one(0, "echo", numpy.zeros(3, dtype))
    back = await weighers["pickle"].call_one(0, "echo", numpy.zeros(3, dtype))
    assert back.dtype == numpy.dtype(dtype)


@pytest.mark.parametrize(
    "sort", [numpy.ma.array([1, 2], mask=[False, True]), numpy.zeros(2, "i4").view(numpy.recarray)]
)
async def test_more_than_an_array_is_refused_without_pickle(weighers: Weighers, sort: Any) -> None:
    """It would arrive as less."""
    with pytest.raises(TypeError, match="is more than an array"):
        await weighers["sync"].call_one(0, "echo", sort)
    assert type(await weighers["pickle"].call_one(0, "echo", sort)) is type(sort)


async def test_numbers_of_numpy_become_plain_ones(plain: WorkerGroup[Any]) -> None:
    scalars = [numpy.float32(1.5), numpy.int64(-3), numpy.bool_(True), numpy.str_("x"), numpy.uint8(200)]
    back = await plain.call_one(0, "echo", scalars)
    assert back == [1.5, -3, True, "x", 200]
    assert [type(value) for value in back] == [float, int, bool, str, int]


PLAIN: Mapping[str, Any] = {
    "none": None,
    "numbers": [0, -1, 2**63, -(2**63), 2**64 - 1, 1.5, float("inf"), True],
    "text": ["", "\u00e9\U0001f600", "x" * 100_000],
    "nested": {"a": [{"b": [1, [2, {"c": None}]]}], "": {}},
    "keys": {1: "one", None: 2, False: 3, 2.5: 4},
    "short bytes inside": {"a": [b"x", b""]},
    "long bytes inside": {"a": b"x" * 100_000},
    "deep": None,
}


@pytest.mark.parametrize("which", PLAIN)
async def test_plain_objects_travel_as_they_are(weigher: WorkerGroup[Any], which: str) -> None:
    value = PLAIN[which]
    if which == "deep":
        for _ in range(100):
            value = [value]
    assert await weigher.call_one(0, "echo", value) == value
    assert await weigher.call("echo", value) == [value] * weigher.size
    assert [part async for part in weigher.stream(0, "echo_each", [value])] == [value]


async def test_pickle_carries_what_pickles(weighers: Weighers) -> None:
    value = {(1, "a"): {2, 3}, "c": complex(1, 2), "d": (4,), "r": range(3), "e": 2**70, "k": Weigher}
    back = await weighers["pickle"].call_one(0, "echo", value)
    assert back == value
    assert [type(each) for each in back.values()] == [type(each) for each in value.values()]


async def test_what_pickle_does_not_take_is_told_at_the_sender(weighers: Weighers) -> None:
    with pytest.raises((TypeError, AttributeError, pickle.PicklingError), match=r"local|pickle"):
        await weighers["pickle"].call_one(0, "echo", lambda: None)
    assert weighers["pickle"].statistics().pending == 0


class Boom:
    """Runs code where it is unpickled."""

    def __reduce__(self) -> Any:
        return (exec, ("raise SystemExit",))


async def test_nothing_is_unpickled_unless_pickle_was_named(plain: WorkerGroup[Any]) -> None:
    with pytest.raises(TypeError, match=r"Boom is no plain object"):
        await plain.call_one(0, "echo", Boom())
    assert await plain.call_one(0, "echo", pickle.dumps(Boom())) == pickle.dumps(Boom())


LARGE = 70_000  # bytes; small messages are copied out, so that they take up no room


async def test_large_arguments_lie_in_the_ring(plain: WorkerGroup[Any]) -> None:
    large = numpy.arange(LARGE // 8)
    assert await plain.call_one(0, "places", large, bytearray(8), a=memoryview(noise(5000))) == [IN_PLACE] * 3
    assert await plain.call("places", large, a=bytearray(100)) == [[IN_PLACE] * 2] * 2


@pytest.mark.parametrize("which", ["async", "pickle"])
async def test_large_arguments_lie_in_the_ring_of_the_others_too(weighers: Weighers, which: str) -> None:
    placed = await weighers[which].call_one(0, "place", numpy.zeros(LARGE, "u1"))
    assert (placed["in ring"], placed["read-only"]) == (True, True)


async def test_small_arguments_are_copied_out(plain: WorkerGroup[Any]) -> None:
    assert not (await plain.call_one(0, "place", numpy.arange(10)))["in ring"]


async def test_answers_are_copies_that_can_be_written(weigher: WorkerGroup[Any]) -> None:
    result = await weigher.call_one(0, "fresh", LARGE, 1)
    assert not in_ring(result)
    result[0] ^= 1
    for one in await weigher.call("fresh", LARGE, 1):
        assert not in_ring(one)


async def test_answers_lie_in_the_ring_when_asked_for_in_place(weigher: WorkerGroup[Any]) -> None:
    inside = weigher.options(in_place=True)
    result = await inside.call_one(0, "fresh", 5000, 1)
    assert (place(result)["in ring"], place(result)["read-only"]) == (True, True)
    assert not in_ring((await inside.call("fresh", 5000, 1))[0])  # these wait for each other


async def test_answers_in_place_lie_where_vectors_want_them(plain: WorkerGroup[Any]) -> None:
    assert place(await plain.options(in_place=True).call_one(0, "fresh", 5000, 1)) == IN_PLACE


async def test_what_lies_in_the_ring_cannot_be_written(plain: WorkerGroup[Any]) -> None:
    with pytest.raises(ValueError, match="read-only"):
        await plain.call_one(0, "spoil", numpy.zeros(LARGE))
    with pytest.raises(TypeError, match="cannot modify read-only memory"):
        await plain.call_one(0, "spoil", bytearray(LARGE))
    result = await plain.options(in_place=True).call_one(0, "fresh", 100, 1)
    with pytest.raises(ValueError, match="read-only"):
        result[0] = 1
    del result  # which the frame in that error's traceback would keep, and with it the ring


async def test_any_number_of_answers_can_be_kept(weigher: WorkerGroup[Any]) -> None:
    """Many times the ring, by a gather that has them all at the end."""
    kept = await asyncio.gather(*(weigher.call_one("any", "fresh", RING // 4, seed) for seed in range(20)))
    for seed, result in enumerate(kept):
        assert result.tobytes() == Weigher().fresh(RING // 4, seed).tobytes()


async def test_kept_views_stay_as_they_are(weigher: WorkerGroup[Any]) -> None:
    """Whatever comes after them."""
    size = RING * 2 // 5
    for turn in range(3):
        inside = weigher.options(in_place=True)
        kept = [await inside.call_one(0, "fresh", size, seed) for seed in (turn, turn + 10)]
        for _ in range(5):
            await weigher.call_one(0, "echo", noise(1000))
        for seed, result in zip((turn, turn + 10), kept, strict=True):
            assert result.tobytes() == Weigher().fresh(size, seed).tobytes()
        del result, kept  # else they would be in the way of the next ones


async def test_a_result_gives_its_room_back_when_it_dies(weigher: WorkerGroup[Any]) -> None:
    for seed in range(20):
        inside = weigher.options(in_place=True)
        assert (await inside.call_one(0, "fresh", RING * 2 // 5, seed)).nbytes == RING * 2 // 5


async def test_a_worker_may_keep_its_arguments(weigher: WorkerGroup[Any]) -> None:
    for turn in range(6):
        sent = [noise(RING // 8 + turn), numpy.frombuffer(noise(RING // 8), "u1")]
        for value in sent:
            await weigher.call_one(0, "keep", value)
        for _ in range(20):
            await weigher.call_one(0, "echo", noise(200))
        assert await weigher.call_one(0, "give_back") == [digest(bytes(value)) for value in sent]


async def test_arguments_are_taken_when_the_call_is_made(plain: WorkerGroup[Any]) -> None:
    """Objects are; buffers may be read until the call has ended."""
    value: list[Any] = [1, {"a": 2}]
    calling = asyncio.ensure_future(plain.call_one(0, "echo", value))
    await asyncio.sleep(0)
    value[1]["a"] = 3
    assert await calling == [1, {"a": 2}]


async def test_the_codecs_give_back_what_they_took() -> None:
    """Without any queue, for the buffers beside a body."""
    for name in ("msgpack", "pickle"):
        codec = _body.find(name)
        args, kwargs = codec.decode(
            *_received(codec.encode_call((1, b"y" * 5000, numpy.arange(3)), {"k": bytearray(2)}))
        )
        assert (args[0], args[1], args[2].tolist(), bytes(kwargs["k"])) == (1, b"y" * 5000, [0, 1, 2], bytes(2))


def _received(encoded: _body.Encoded) -> tuple[memoryview, list[memoryview]]:
    body, buffers = encoded
    return memoryview(body), [memoryview(bytes(buffer)) for buffer in buffers]
