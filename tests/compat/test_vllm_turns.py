"""Coroutines that never have to wait give the loop its turns all the same."""

from __future__ import annotations

import asyncio
import itertools

import numpy as np
import pytest

from aiospin.compat.vllm import MessageQueue

pytestmark = pytest.mark.usefixtures("leaves_nothing")


class Ticker:
    """Counts the turns of the loop for as long as it runs."""

    def __init__(self) -> None:
        self.turns = 0

    async def run(self) -> None:
        while True:
            self.turns += 1
            await asyncio.sleep(0)


@pytest.mark.parametrize("holding", [False, True])
async def test_sending_and_receiving_what_is_ready_lets_others_run(holding: bool) -> None:
    writer = MessageQueue(1, 1)
    reader = MessageQueue.create_from_handle(writer.export_handle(), 0)
    held = None
    if holding:
        writer.enqueue(np.zeros(1 << 21, np.uint8))
        held = reader.dequeue()
    ticker = Ticker()
    task = asyncio.get_running_loop().create_task(ticker.run())
    await asyncio.sleep(0)
    for send in (True, False):
        began = ticker.turns
        for number in itertools.count():
            await (writer.aenqueue(number) if send else reader.adequeue())
            if ticker.turns - began >= 3:
                break
            assert number < 200_000, "the loop never had a turn"
            if not send:
                writer.enqueue(number)
    task.cancel()
    del held
    writer.shutdown()
    reader.shutdown()
