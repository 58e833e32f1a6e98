"""Closed-loop clients of a model server: each sends a file, waits for what becomes of it, and sends the next.

Every request has a number of its own in the file's name, which the answer must echo, so that an answer which is lost,
doubled, or somebody else's is seen for what it is. What a server sends after the last request, until it closes, counts.

Guarantee: `run_clients` returns; a request without an outcome by then stands in the ledger as lost.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence

from .http_connection import Connection, Disconnected, Response
from .ledger import REFUSALS, Ledger
from .samples import Sample

BACK_OFF = 0.02
"""seconds before a client that was refused, or found nobody, asks again"""


async def run_clients(
    port: int,
    clients: int,
    seconds: float,
    samples: Sequence[Sample],
    ledger: Ledger,
    *,
    most: int | None = None,
    patience: float = 30.0,
) -> None:
    """So many clients for so long; then up to `patience` seconds for what is still under way.

    With `most`, each client ends after so many requests if it gets there.
    """
    end = time.monotonic() + seconds
    tasks = [asyncio.ensure_future(_Client(port, samples, ledger, first).run(end, most)) for first in range(clients)]
    _, late = await asyncio.wait(tasks, timeout=seconds + patience)
    for task in late:
        task.cancel()
    for outcome in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(outcome, Exception):
            raise outcome


class _Client:
    """One client, and its connection as long as that holds."""

    def __init__(self, port: int, samples: Sequence[Sample], ledger: Ledger, first: int) -> None:
        self._port = port
        self._samples = samples
        self._ledger = ledger
        self._next = first
        self._connection: Connection | None = None

    async def run(self, end: float, most: int | None) -> None:
        """Until then, or so many requests."""
        first = self._next
        try:
            while time.monotonic() < end and (most is None or self._next < first + most):
                await self._ask()
            if self._connection is not None:
                for response in await self._connection.finish():
                    self._enter_late(response)
        except Disconnected as error:
            self._ledger.strange(f"after the last answer: {error}")
        finally:
            if self._connection is not None:
                self._connection.close()

    async def _ask(self) -> None:
        sample = self._samples[self._next % len(self._samples)]
        self._next += 1
        number = self._ledger.ask(sample.label)
        try:
            if self._connection is None:
                self._connection = await Connection.open("127.0.0.1", self._port)
            before = time.perf_counter_ns()
            self._connection.send("POST", f"/predict?name={number}-{sample.name}", sample.content)
            while True:
                response = await self._connection.read()
                if self._enter(number, response, before):
                    break
        except (Disconnected, OSError) as error:
            self._ledger.fail(number, f"{type(error).__name__}: {error}")
            self._drop()
            await asyncio.sleep(BACK_OFF)
            return
        if not response.keeps_alive:
            self._drop()
        if response.status != 200:
            await asyncio.sleep(BACK_OFF)

    def _enter(self, number: int, response: Response, sent_ns: int) -> bool:
        """Enter a response in the ledger. False if it is an answer to another request than the one under way."""
        if response.status in REFUSALS:
            self._ledger.refuse(number, response.status)
        elif response.status != 200:
            self._ledger.fail(number, f"status {response.status}: {response.body[:200]!r}")
        else:
            answered, label = _read_answer(response.body)
            is_ours = answered == number
            self._ledger.answer(answered, label, time.perf_counter_ns() - sent_ns if is_ours else None)
            return is_ours
        return True

    def _enter_late(self, response: Response) -> None:
        if response.status == 200:
            self._ledger.answer(*_read_answer(response.body), None)
        else:
            self._ledger.strange(f"a response of status {response.status} came that nobody had asked for")

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _read_answer(body: bytes) -> tuple[int, str]:
    """Number and label; -1 and what came, if that is no answer."""
    try:
        answer = json.loads(body)
        return int(answer["name"].partition("-")[0]), answer["label"]
    except (ValueError, KeyError, TypeError, AttributeError):
        return -1, repr(body[:200])
