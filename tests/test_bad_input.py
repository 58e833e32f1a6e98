"""Bad input: each a typed error, at the call that was given it, which names the value."""

from __future__ import annotations

import array
import math
import struct
import sys
from typing import Any

import numpy as np
import pytest
from ends import LARGEST, RING, content, ends, pair
from forked import open_descriptors

import aiospin

pytestmark = pytest.mark.usefixtures("leaves_nothing")


@pytest.mark.parametrize(
    ("capacity", "error"),
    [
        *[(0, ValueError), (-1, ValueError), ("0", ValueError), ("-4 MiB", ValueError), ("", ValueError)],
        *[("a lot", ValueError), ("4 MiBs", ValueError), ("1e6", ValueError), ("4 4 MiB", ValueError)],
        *[("nan", ValueError), (math.nan, TypeError), (1.5, TypeError), (None, TypeError), (True, TypeError)],
        *[(b"4 MiB", TypeError), ([65536], TypeError), (2**70, aiospin.SegmentTooLarge)],
    ],
)
def test_a_capacity_that_cannot_be(capacity: Any, error: type[Exception]) -> None:
    before = open_descriptors()
    with pytest.raises(error) as caught:
        aiospin.Queue(capacity=capacity)
    assert (
        str(capacity) in str(caught.value) or repr(capacity) in str(caught.value) or str(2**70)[:4] in str(caught.value)
    )
    assert open_descriptors() == before


def test_a_capacity_above_the_machine_names_size_and_limit() -> None:
    with pytest.raises(aiospin.SegmentTooLarge) as caught:
        aiospin.Queue(capacity="1000 TiB")
    assert caught.value.size >= 1000 * 2**40 > caught.value.limit > 0
    assert caught.value.source in str(caught.value) and str(caught.value.limit) in str(caught.value)


@pytest.mark.parametrize(("capacity", "rounded"), [(1, RING), ("1 KiB", RING), (RING + 1, 2 * RING), ("64 KiB", RING)])
def test_a_small_capacity_is_rounded_up(capacity: int | str, rounded: int) -> None:
    with ends(capacity=capacity) as (queue, writer, (reader,)):
        assert queue.capacity == rounded
        writer.put(content(0, rounded - 64))
        assert reader.get() == content(0, rounded - 64)


@pytest.mark.parametrize(
    ("readers", "error"),
    [
        (-1, ValueError),
        (1025, ValueError),
        (10**30, ValueError),
        (1.0, TypeError),
        ("1", TypeError),
        (None, TypeError),
        (True, TypeError),
    ],
)
def test_a_number_of_readers_that_cannot_be(readers: Any, error: type[Exception]) -> None:
    with pytest.raises(error) as caught:
        aiospin.Queue(readers=readers)
    assert repr(readers) in str(caught.value)


@pytest.mark.parametrize("readers", [0, 1, 64, 1024])
def test_as_many_readers_as_are_legal(readers: int) -> None:
    with aiospin.Queue(readers=readers, capacity=RING) as queue, queue.writer() as writer:
        writer.put(b"x")
        if readers:
            with queue.reader(readers - 1) as last:
                assert last.get() == b"x"


@pytest.mark.parametrize("rank", [-1, 2, 10**20, "0", 0.0, None, True])
def test_a_rank_out_of_range(rank: Any) -> None:
    with ends(readers=2) as (queue, _, _readers):
        with pytest.raises((ValueError, TypeError), match="rank") as caught:
            queue.reader(rank)
        assert repr(rank) in str(caught.value)


def test_a_rank_of_a_queue_without_readers() -> None:
    with ends(readers=0) as (queue, _, _readers):
        with pytest.raises(ValueError, match="no readers"):
            queue.reader(0)
        with pytest.raises(TypeError, match="0 readers"):
            queue.get()


def test_a_queue_with_several_readers_does_not_read_for_itself() -> None:
    with ends(readers=2) as (queue, _, _readers):
        for call in (lambda: queue.get(), lambda: iter(queue), lambda: queue.acquire_read()):
            with pytest.raises(TypeError, match=r"2 readers.*queue\.reader"):
                call()
        with pytest.raises(AttributeError, match="put"):
            queue.put(b"x")


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *[("codec", "json"), ("codec", None), ("codec", 1), ("policy", "fast"), ("policy", 3), ("policy", "")],
        *[("on_peer_death", "ignore"), ("on_peer_death", None), ("stall_after", 0), ("stall_after", -1.0)],
        *[("stall_after", math.nan), ("stall_after", "10"), ("stall_after", True), ("stall_after", None)],
    ],
)
def test_an_option_that_cannot_be(option: str, value: Any) -> None:
    with pytest.raises((ValueError, TypeError), match=option) as caught:
        aiospin.Queue(capacity=RING, **{option: value})
    assert repr(value) in str(caught.value)


def test_unknown_options_are_named() -> None:
    with pytest.raises(TypeError, match="size"):
        aiospin.Queue(size=3)  # type: ignore[call-arg]
    with ends() as (_, _writer, (reader,)):
        with pytest.raises(TypeError, match="speed"):
            aiospin.attach(str(reader.handle), speed=3)
        with pytest.raises(ValueError, match="fast"):
            aiospin.attach(str(reader.handle), policy="fast")


@pytest.mark.parametrize(
    "handle", ["", "x", "aiospin:", "aiospin1:AAAA", "not a handle at all", "\0", "a" * 10_000, "é"]
)
def test_garbage_is_no_handle(handle: str) -> None:
    with pytest.raises(aiospin.AttachError):
        aiospin.attach(handle)


@pytest.mark.parametrize("handle", [None, 1, b"aiospin", ["aiospin"], object])
def test_what_is_no_text_is_no_handle(handle: Any) -> None:
    with pytest.raises(TypeError) as caught:
        aiospin.attach(handle)
    assert repr(handle) in str(caught.value)


def test_a_handle_cut_short_or_changed_anywhere() -> None:
    with ends() as (_, _writer, (reader,)):
        text = str(reader.handle)
        for length in range(len(text)):
            with pytest.raises(aiospin.AttachError):
                aiospin.attach(text[:length])
        for place in range(len(text)):
            with pytest.raises(aiospin.AttachError):
                aiospin.attach(text[:place] + ("A" if text[place] != "A" else "B") + text[place + 1 :])


def test_a_stale_handle_names_the_segment() -> None:
    with ends() as (_, _writer, (reader,)):
        text = str(reader.handle)
        name = reader.handle.segment.name
        reader.close()
    with pytest.raises(aiospin.AttachError) as caught:
        aiospin.attach(text)
    assert name in str(caught.value)


STRANGE = [
    *[None, 1, 1.5, "text", ["list"], object(), {}],
    *[iter([b"x"]), (b"a", b"b"), Exception],
]


@pytest.mark.parametrize("payload", STRANGE, ids=lambda payload: type(payload).__name__)
def test_a_payload_that_is_not_bytes_like(payload: Any) -> None:
    with pair() as (writer, reader):
        for call in (
            lambda: writer.put(payload),
            lambda: writer.put(b"head", payload),
            lambda: writer.put_nowait(payload),
            lambda: writer.put_many([b"first", payload]),
        ):
            with pytest.raises(TypeError, match="bytes-like") as caught:
                call()
            assert type(payload).__name__ in str(caught.value)
        assert reader.try_acquire_read() is None, "nothing of it was sent"


@pytest.mark.parametrize(
    "payload",
    [
        memoryview(bytes(100))[::2],
        np.arange(100).reshape(10, 10).T,
        np.arange(100)[::3],
        np.asfortranarray(np.ones((3, 4))),
    ],
    ids=["strided_view", "transposed", "strided_array", "fortran"],
)
def test_a_payload_that_is_not_contiguous(payload: Any) -> None:
    with pair() as (writer, reader):
        for call in (lambda: writer.put(payload), lambda: writer.put_many([payload])):
            with pytest.raises((BufferError, ValueError), match="contiguous") as caught:
                call()
            assert type(payload).__name__ in str(caught.value)
        assert reader.try_acquire_read() is None


@pytest.mark.parametrize(
    "payload",
    [
        *[
            bytearray(b"abcd"),
            memoryview(b"abcd"),
            array.array("i", [1, 2]),
            np.arange(5),
            np.arange(6.0).reshape(2, 3),
        ],
        *[
            np.float64(1.5),
            np.array(7),
            memoryview(np.arange(6)).cast("B"),
            np.zeros(0),
            np.zeros((0, 5)),
            struct.pack("<Q", 1),
        ],
    ],
    ids=lambda payload: type(payload).__name__,
)
def test_every_contiguous_buffer_is_a_payload(payload: Any) -> None:
    with pair() as (writer, reader):
        writer.put(payload)
        writer.put_many([payload, payload])
        assert (
            reader.get_many(3)
            == [
                bytes(
                    memoryview(payload).cast("B")
                    if memoryview(payload).nbytes and memoryview(payload).ndim
                    else memoryview(payload).tobytes()
                )
            ]
            * 3
        )


@pytest.mark.parametrize(
    ("size", "error"),
    [(-1, ValueError), (2**80, (OverflowError, MemoryError)), (1.5, TypeError), ("1", TypeError), (None, TypeError)],
)
def test_a_claim_of_impossible_size(size: Any, error: type[Exception]) -> None:
    with pair() as (writer, _):
        for call in (lambda: writer.try_acquire_write(size), lambda: writer.acquire_write(size).__enter__()):
            with pytest.raises(error):
                call()
        writer.put(b"works still")


def test_a_claim_beyond_memory() -> None:
    with pair() as (writer, reader):
        with pytest.raises((MemoryError, OverflowError, ValueError)):
            writer.try_acquire_write(sys.maxsize)
        writer.put(b"works still")
        assert reader.get() == b"works still"


@pytest.mark.parametrize(
    ("count", "error"), [(0, ValueError), (-1, ValueError), (1.5, TypeError), ("1", TypeError), (None, TypeError)]
)
def test_an_impossible_number_of_messages(count: Any, error: type[Exception]) -> None:
    with pair() as (_, reader):
        for call in (lambda: reader.get_many(count), lambda: reader.aget_many(count)):
            with pytest.raises(error):
                call()


@pytest.mark.parametrize("payloads", [None, 5, b"bytes are numbers", object()])
def test_what_is_no_list_of_payloads(payloads: Any) -> None:
    with pair() as (writer, _):
        with pytest.raises(TypeError):
            writer.put_many(payloads)


def test_put_nowait_of_what_can_never_fit_at_once() -> None:
    with pair() as (writer, _):
        with pytest.raises(ValueError, match=str(LARGEST + 1)):
            writer.put_nowait(bytes(LARGEST + 1))


def test_an_iterator_of_payloads_that_fails_sends_nothing() -> None:
    with pair() as (writer, reader):

        def payloads() -> Any:
            yield b"first"
            raise KeyError("mine")

        with pytest.raises(KeyError, match="mine"):
            writer.put_many(payloads())
        assert reader.try_acquire_read() is None


def test_messages_that_a_codec_refuses() -> None:
    with pair(codec="msgpack") as (writer, reader):
        with pytest.raises(TypeError):
            writer.put(object())
        with pytest.raises(TypeError, match=r"one object.* not 2"):
            writer.put(1, 2)
        with writer.acquire_write(1) as slot:
            slot.data[:] = b"\xc1"  # never valid
        writer.put({"still": ["works", 1]})
        with pytest.raises(ValueError):
            reader.get()
        assert reader.get() == {"still": ["works", 1]}
