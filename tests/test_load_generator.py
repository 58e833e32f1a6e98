"""The load generator sees what it is there to see: lost, doubled, swapped and wrong answers, and no ghosts."""

from __future__ import annotations

import asyncio
import mmap
import os
from statistics import median

import pytest
from servers import stub
from servers.clients import run_clients
from servers.ledger import Ledger
from servers.memory import MemoryLog, resident, slope
from servers.samples import Sample

pytestmark = pytest.mark.repository

SAMPLE = Sample("sample.bin", b"content" * 100, "text")
REQUESTS = 6


async def load(faults: dict[int, stub.Fault], *, clients: int = 1, patience: float = 60.0) -> Ledger:
    """So many requests from each client, to a server with these faults."""
    ledger = Ledger()
    async with stub.stub(SAMPLE, faults) as port:
        await run_clients(port, clients, 60.0, [SAMPLE], ledger, most=REQUESTS, patience=patience)
    return ledger


async def test_a_server_that_answers_all_gives_no_reason_to_complain() -> None:
    ledger = await load({}, clients=5)
    assert ledger.complaints() == []
    assert (ledger.asked, ledger.answered) == (5 * REQUESTS, 5 * REQUESTS)
    assert len(ledger.took_ns) == 5 * REQUESTS and median(ledger.took_ns) > 0


async def test_a_refusal_is_counted_and_no_reason_to_complain() -> None:
    ledger = await load({1: stub.refused, 3: stub.late, 4: stub.refused})
    assert ledger.complaints() == []
    assert (ledger.answered, ledger.refused) == (REQUESTS - 3, {503: 2, 504: 1})


FAULTS = {
    "twice": (stub.twice, "request 2 ended 2 times: answered, answered"),
    "wrong label": (stub.wrong_label, "request 2 answered 'nonsense' for 'text'"),
    "an answer to another": (stub.of_another, "request 1 ended 2 times: answered, answered"),
    "an answer to nobody": (stub.of_nobody, "an answer carries the number 1000000, which was never sent"),
    "broken": (stub.broken, "request 2 failed: status 500"),
    "hang up": (stub.hang_up, "request 2 failed: Disconnected: the connection ended after 0 bytes of a response"),
    "hang up half-way": (stub.hang_up_half_way, "request 2 failed: Disconnected: the connection ended after 40 bytes"),
    "no HTTP": (stub.no_http, "request 2 failed: Disconnected: not a response with a length: 'hello'"),
}


@pytest.mark.parametrize(("fault", "complaint"), FAULTS.values(), ids=FAULTS)
async def test_a_fault_is_found_and_told_apart(fault: stub.Fault, complaint: str) -> None:
    ledger = await load({2: fault})
    (found,) = ledger.complaints()
    assert found.startswith(complaint)
    assert ledger.asked == REQUESTS  # the others were asked all the same


async def test_a_second_answer_to_the_last_request_is_found_too() -> None:
    ledger = await load({REQUESTS - 1: stub.twice})
    assert ledger.complaints() == [f"request {REQUESTS - 1} ended 2 times: answered, answered"]


async def test_what_is_never_answered_is_lost_and_does_not_hold_up_the_run() -> None:
    ledger = Ledger()
    async with stub.stub(SAMPLE, {0: stub.never}) as port:
        await run_clients(port, 1, 0.1, [SAMPLE], ledger, patience=0.1)
    assert ledger.complaints() == ["request 0 was lost: nothing came for it"]


async def test_a_server_that_is_not_there_fails_every_request() -> None:
    async with stub.stub(SAMPLE, {}) as port:
        pass
    ledger = Ledger()
    await run_clients(port, 1, 60.0, [SAMPLE], ledger, most=2)
    assert sum(ledger.failures.values()) == 2
    assert all(why.startswith("ConnectionRefusedError") for why in ledger.failures)


def test_the_slope_is_that_of_the_line_of_least_squares() -> None:
    assert slope([(0.0, 1.0), (1.0, 3.0), (2.0, 5.0)]) == pytest.approx(2.0)
    assert slope([(0.0, 0.0), (1.0, 2.0), (2.0, 1.0)]) == pytest.approx(0.5)
    assert slope([(1.0, 5.0)]) == 0.0
    assert slope([(1.0, 5.0), (1.0, 6.0)]) == 0.0


async def test_memory_is_followed_and_its_growth_seen() -> None:
    log, kept = MemoryLog(), list[mmap.mmap]()
    for moment in range(12):
        # Not from the heap, which may have room that earlier tests have left.
        kept.append(mmap.mmap(-1, 4 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
        kept[-1].write(b"x" * (4 << 20))
        size = resident(os.getpid())
        assert size is not None
        log.samples.setdefault(os.getpid(), []).append((float(moment), *size))
    growth = log.growth(os.getpid())
    assert growth is not None
    assert growth.last > growth.first and growth.private_slope == pytest.approx(4 << 20, rel=0.2)
    assert log.growth(-1) is None and resident(2**22 + 1) is None
    for each in kept:
        each.close()


async def test_following_asks_who_is_there_each_time() -> None:
    log, asked = MemoryLog(), asyncio.Event()
    rounds = 0

    async def pids() -> list[int]:
        nonlocal rounds
        rounds += 1
        if rounds == 3:
            asked.set()
        return [os.getpid()] if rounds > 1 else []

    following = asyncio.ensure_future(log.follow(pids, 0.001))
    await asked.wait()
    following.cancel()
    await asyncio.wait([following])
    assert len(log.samples[os.getpid()]) >= 1
