"""Errors call readers as the user does, and say what to do instead."""

from __future__ import annotations

import asyncio
import pickle
from concurrent.futures import ThreadPoolExecutor

import pytest
from compat_rig import end, sides
from ends import asleep

import aiospin
from aiospin.compat.vllm import MessageQueue

pytestmark = pytest.mark.usefixtures("leaves_nothing")


def test_what_a_reader_raises_about_itself_has_its_rank() -> None:
    with sides((5, 7)) as (queue, [first, second]):
        for call in (lambda: second.dequeue(timeout=0), lambda: asyncio.run(second.adequeue(timeout=0.001))):
            with pytest.raises(TimeoutError, match=r"^reader 7: no message within 0\.0"):
                call()
        with pytest.raises(aiospin.RoleTaken, match="the role of reader 5 is held by"):
            MessageQueue.create_from_handle(queue.export_handle(), 5)
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(first.dequeue)
            asleep(end(first))
            with pytest.raises(aiospin.ReaderBusy, match="receiving as reader 5"):
                first.dequeue()
            queue.enqueue("there")
            assert (waiting.result(), second.dequeue()) == ("there", "there")
        queue.shutdown()
        with pytest.raises(aiospin.QueueClosed, match=r"^reader 7: the writer has shut down"):
            second.dequeue()


def test_a_queue_that_is_handed_out_says_what_to_hand_out() -> None:
    with sides() as (queue, [reader]):
        for each in (queue, reader):
            with pytest.raises(TypeError, match=r"send its export_handle\(\)"):
                pickle.dumps(each)


def test_who_has_not_come_in_time_is_named() -> None:
    queue = MessageQueue(2, 2, [5, 7])
    reader = MessageQueue.create_from_handle(queue.export_handle(), 5)
    for each in (queue, reader):
        with pytest.raises(TimeoutError, match=r"readers 7 have not come within 0\.0 s"):
            each.wait_until_ready(timeout=0)
        with pytest.raises(TimeoutError, match="readers 7 have not come"):
            asyncio.run(each.await_until_ready(timeout=0.001))
    other = MessageQueue.create_from_handle(queue.export_handle(), 7)
    asyncio.run(queue.await_until_ready())
    queue.wait_until_ready(timeout=0)
    for each in (queue, reader, other):
        each.shutdown()
