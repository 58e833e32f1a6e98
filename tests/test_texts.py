"""What everyday errors say, word for word: the same on both backends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from ends import LARGEST, pair

from aiospin import Empty, Full, QueueClosed

pytestmark = pytest.mark.usefixtures("leaves_nothing")


def said(kind: type[BaseException], call: Callable[..., Any], *arguments: Any, **options: Any) -> str:
    with pytest.raises(kind) as caught:
        call(*arguments, **options)
    return str(caught.value)


def test_nothing_there_and_no_room() -> None:
    with pair() as (writer, reader):
        assert said(Empty, reader.get_nowait) == "reader 0: no message now"
        assert said(TimeoutError, reader.get, timeout=0.0) == "reader 0: no message within 0.0 s"
        writer.put(bytes(LARGEST))
        assert said(Full, writer.put_nowait, b"more") == "the writer: no room for 4 bytes now"
        assert said(TimeoutError, writer.put, b"more", timeout=0.25) == "writer: no room within 0.25 s"


def test_ends_of_streams() -> None:
    with pair() as (writer, reader):
        writer.put(b"last")
        writer.close()
        assert reader.get() == b"last"
        assert said(QueueClosed, reader.get) == "reader 0: the stream has ended"
        assert said(QueueClosed, writer.put, b"") == "writer is closed"
        reader.close()
        assert said(QueueClosed, reader.get) == "reader 0 is closed"


def test_what_is_no_timeout_and_no_payload() -> None:
    with pair() as (writer, reader):
        assert said(TypeError, reader.get, timeout="1") == "timeout must be a number of seconds or None, not '1'"
        assert said(ValueError, reader.get, timeout=-1) == "timeout must be 0 or more seconds, or None, not -1"
        assert said(TypeError, writer.put, 1) == "a payload must be bytes-like, not int"
        assert (
            said(BufferError, writer.put, memoryview(bytes(4))[::2])
            == "a payload must be C-contiguous, and this memoryview is not"
        )
