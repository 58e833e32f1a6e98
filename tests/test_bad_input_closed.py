"""Every call of an end that was closed or detached, used before or not: QueueClosed that names the role."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from ends import pair

import aiospin

pytestmark = pytest.mark.usefixtures("leaves_nothing")

CLOSED_READER: dict[str, Callable[[Any], object]] = {
    "get": lambda reader: reader.get(),
    "get_nowait": lambda reader: reader.get_nowait(),
    "get_many": lambda reader: reader.get_many(1),
    "try_acquire_read": lambda reader: reader.try_acquire_read(),
    "acquire_read": lambda reader: reader.acquire_read().__enter__(),
    "fileno": lambda reader: reader.fileno(),
    "arm": lambda reader: reader.arm(),
    "enter": lambda reader: reader.__enter__(),
}
CLOSED_WRITER: dict[str, Callable[[Any], object]] = {
    "put": lambda writer: writer.put(b""),
    "put_nowait": lambda writer: writer.put_nowait(b""),
    "put_many": lambda writer: writer.put_many([b""]),
    "try_acquire_write": lambda writer: writer.try_acquire_write(1),
    "acquire_write": lambda writer: writer.acquire_write(1).__enter__(),
    "drop_reader": lambda writer: writer.drop_reader(0),
    "fileno": lambda writer: writer.fileno(),
    "arm": lambda writer: writer.arm(),
    "enter": lambda writer: writer.__enter__(),
}


@pytest.mark.parametrize("claimed", [False, True], ids=["never_used", "used"])
@pytest.mark.parametrize("ending", ["close", "detach"])
@pytest.mark.parametrize("call", CLOSED_READER)
def test_a_reader_after_its_end(call: str, ending: str, claimed: bool) -> None:
    with pair() as (_, reader):
        if claimed:
            assert reader.try_acquire_read() is None
        getattr(reader, ending)()
        with pytest.raises(aiospin.QueueClosed, match="reader 0"):
            CLOSED_READER[call](reader)


@pytest.mark.parametrize("claimed", [False, True], ids=["never_used", "used"])
@pytest.mark.parametrize("ending", ["close", "detach"])
@pytest.mark.parametrize("call", CLOSED_WRITER)
def test_a_writer_after_its_end(call: str, ending: str, claimed: bool) -> None:
    with pair() as (writer, _):
        if claimed:
            writer.put(b"")
        getattr(writer, ending)()
        with pytest.raises(aiospin.QueueClosed, match="writer"):
            CLOSED_WRITER[call](writer)
