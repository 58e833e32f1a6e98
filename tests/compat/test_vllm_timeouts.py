"""Time-outs that are none are refused where they are given, be there anything to wait for or not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from compat_rig import sides

from aiospin.compat.vllm import MessageQueue

pytestmark = pytest.mark.usefixtures("leaves_nothing")

SENDS: dict[str, Callable[[MessageQueue, Any], Any]] = {
    "enqueue": lambda queue, timeout: queue.enqueue(1, timeout),
    "aenqueue": lambda queue, timeout: asyncio.run(queue.aenqueue(1, timeout)),
    "acquire_write": lambda queue, timeout: queue.acquire_write(timeout).__enter__(),
}
RECEIVES: dict[str, Callable[[MessageQueue, Any], Any]] = {
    "dequeue": lambda queue, timeout: queue.dequeue(timeout),
    "adequeue": lambda queue, timeout: asyncio.run(queue.adequeue(timeout)),
    "acquire_read": lambda queue, timeout: queue.acquire_read(timeout).__enter__(),
}
NONE: dict[str, tuple[Any, type[Exception]]] = {
    "text": ("soon", TypeError),
    "a flag": (True, TypeError),
    "no number": (float("nan"), ValueError),
}


@pytest.mark.parametrize("what", NONE)
@pytest.mark.parametrize("call", SENDS)
def test_a_sender_refuses_it_with_room(call: str, what: str) -> None:
    timeout, error = NONE[what]
    with sides() as (queue, [reader]):
        with pytest.raises(error, match=repr(timeout)):
            SENDS[call](queue, timeout)
        with pytest.raises(TimeoutError):
            reader.dequeue(timeout=0)


@pytest.mark.parametrize("lent", [False, True])
@pytest.mark.parametrize("what", NONE)
@pytest.mark.parametrize("call", RECEIVES)
def test_a_reader_refuses_it_with_a_message_ready(call: str, what: str, lent: bool) -> None:
    timeout, error = NONE[what]
    with sides(capacity="8 MiB") as (queue, [reader]):
        held = None
        if lent:
            queue.enqueue(np.zeros(2 << 20, np.uint8))
            held = reader.dequeue()
        queue.enqueue("ready")
        with pytest.raises(error, match=repr(timeout)):
            RECEIVES[call](reader, timeout)
        assert reader.dequeue() == "ready"
        del held


def test_a_time_out_has_no_other_error_behind_it() -> None:
    with sides() as (queue, _), pytest.raises(TimeoutError) as caught:
        while True:
            queue.enqueue(bytes(1000), timeout=0)
    assert caught.value.__context__ is None
