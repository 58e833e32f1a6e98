"""The example's server under load, in short: whoever asks is answered once and rightly, also while a worker is killed.

The long form, with figures, is `python -m tests.servers.load`.
"""

from __future__ import annotations

import pytest
from running_server import needs_the_extra
from servers.clients import run_clients
from servers.ledger import Ledger
from servers.samples import samples_for
from servers.server import serving
from servers.trial import play

pytestmark = [needs_the_extra, pytest.mark.asyncio(loop_factories=["uvloop"])]

SECONDS = 4.0
CLIENTS = 8
WORKERS = 2


async def test_every_request_is_answered_once_while_a_worker_is_killed(leaves_nothing: object) -> None:
    samples = samples_for("magika")
    async with serving("aiospin", "magika", WORKERS) as server:
        outcome = await play(server, samples, clients=CLIENTS, seconds=SECONDS, kill=True)
        assert outcome.complaints == []
        assert outcome.asked == outcome.answered + sum(outcome.refused.values())
        assert outcome.answered > CLIENTS
        assert outcome.killed is not None and outcome.recovered_after is not None

        # It is as good as before.
        health = await server.health()
        assert health["status"] == "ok"
        assert outcome.killed not in [worker["pid"] for worker in health["workers"]]
        after = Ledger()
        await run_clients(server.port, CLIENTS, 60.0, samples, after, most=len(samples))
        assert after.complaints() == []
        assert after.answered == CLIENTS * len(samples)
    assert server.how_it_ended == "exit code 0"


@pytest.mark.parametrize("pool", ["executor", "mp_queue"])
async def test_the_pools_to_compare_with_serve_as_well(pool: str, leaves_nothing: object) -> None:
    ledger = Ledger()
    async with serving(pool, "noop", WORKERS) as server:
        await run_clients(server.port, CLIENTS, 60.0, samples_for("noop"), ledger, most=10)
        assert len(await server.worker_pids()) == WORKERS
    assert ledger.complaints() == []
    assert ledger.answered == CLIENTS * 10
    assert server.how_it_ended == "exit code 0"
