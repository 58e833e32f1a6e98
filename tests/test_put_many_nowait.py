"""Sending many at once without waiting: what fits goes, in order, and the count is told."""

from __future__ import annotations

import asyncio

import pytest
from ends import LARGEST, RING, content, ends, pair

import aiospin


def test_what_fits_goes_and_the_rest_stays_the_callers() -> None:
    with pair() as (writer, reader):
        payloads = [content(number, 5000) for number in range(40)]
        sent = writer.put_many_nowait(payloads)
        assert 0 < sent < 40
        assert writer.put_many_nowait(iter(payloads[sent:])) == 0
        assert reader.get_many(100) == payloads[:sent]
        assert writer.put_many_nowait(payloads[sent:]) == min(sent, 40 - sent)
        assert reader.get_many(100) == payloads[sent : 2 * sent]


def test_nothing_is_a_number_too() -> None:
    with pair() as (writer, reader):
        assert writer.put_many_nowait([]) == 0
        assert writer.put_many_nowait([b"", memoryview(b"x")]) == 2
        assert reader.get_many(3) == [b"", b"x"]


def test_all_are_checked_before_the_first_is_sent() -> None:
    with pair() as (writer, reader):
        for bad, error in (("text", TypeError), (bytes(LARGEST + 1), ValueError)):
            with pytest.raises(error):
                writer.put_many_nowait([b"good", bad])
        with pytest.raises(ValueError, match=str(LARGEST + 1)):
            writer.put_many_nowait([bytes(LARGEST + 1)])
        with pytest.raises(aiospin.Empty):
            reader.get_nowait()
        assert writer.put_many_nowait([bytes(LARGEST)]) == 1


def test_it_stands_behind_a_claim() -> None:
    with pair() as (writer, reader):
        with writer.acquire_write(4) as claim:
            assert writer.put_many_nowait([b"late"]) == 0
            claim.data[:] = b"slot"
        assert writer.put_many_nowait([b"then"]) == 1
        assert reader.get_many(2) == [b"slot", b"then"]


async def test_it_stands_behind_tasks_that_wait() -> None:
    with ends(1) as (_, writer, (reader,)):
        while writer.put_many_nowait([bytes(1000)]):
            pass
        task = asyncio.ensure_future(writer.aput(bytes(1000)))
        await asyncio.sleep(0)
        reader.get_nowait()
        assert writer.put_many_nowait([b"second"]) == 0
        await task


def test_with_a_codec_objects_are_sent() -> None:
    queue: aiospin.Queue[object]
    with aiospin.Queue(capacity=RING, codec="pickle") as queue, queue.writer() as writer, queue.reader() as reader:
        assert writer.put_many_nowait([{"a": 1}, None]) == 2
        assert reader.get_many(2) == [{"a": 1}, None]


def test_a_closed_writer_refuses() -> None:
    with aiospin.Queue[bytes](capacity=RING) as queue:
        writer = queue.writer()
        writer.close()
        with pytest.raises(aiospin.QueueClosed):
            writer.put_many_nowait([b"x"])
        other = queue.writer()
        assert other.put_many_nowait([b"x"]) == 1  # the first use claims
        queue.shutdown()
        with pytest.raises(aiospin.QueueClosed):
            other.put_many_nowait([b"x"])
        other.close()
