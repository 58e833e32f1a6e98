"""A model server in a process of its own: started, asked for its workers, ended.

Guarantee: when the `async with` is left, the server's process is gone, and its worker processes with it; what could not
be ended in order was killed, and `how_it_ended` says so.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .http_connection import Connection

TESTS = Path(__file__).resolve().parents[1]
EXAMPLES = TESTS.parent / "docs" / "examples"
STARTS_WITHIN = 90.0
"""seconds; loading a model on a busy machine takes a while"""
ENDS_WITHIN = 30.0


@dataclass
class ModelServer:
    """A server that listens."""

    port: int
    pid: int
    how_it_ended: str = ""
    seen: set[int] = field(default_factory=set)
    """every worker's pid that it has told of"""

    async def health(self) -> dict[str, Any]:
        """What /healthz says."""
        connection = await Connection.open("127.0.0.1", self.port)
        try:
            connection.send("GET", "/healthz")
            told: dict[str, Any] = json.loads((await connection.read()).body)
        finally:
            connection.close()
        self.seen.update(worker["pid"] for worker in told["workers"] if worker["pid"])
        return told

    async def worker_pids(self) -> list[int]:
        """The workers that have a process now, by rank."""
        return [worker["pid"] for worker in (await self.health())["workers"] if worker["pid"]]


@contextlib.asynccontextmanager
async def serving(pool: str, model: str, workers: int) -> AsyncIterator[ModelServer]:
    """A server on this pool. RuntimeError, with what it wrote, when it does not start."""
    paths = [str(TESTS), str(EXAMPLES), *filter(None, [os.environ.get("PYTHONPATH")])]
    command = ["-m", "servers.serve", "--pool", pool, "--model", model, "--workers", str(workers)]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, *command),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )
    assert process.stdout is not None
    server = ModelServer(0, process.pid)
    try:
        line = (await asyncio.wait_for(process.stdout.readline(), STARTS_WITHIN)).decode()
        if not line.startswith("port "):
            raise RuntimeError(f"the server on {pool} did not start: {line!r}")
        server.port = int(line.split()[1])
        yield server
    finally:
        server.how_it_ended = await _end(process)
        for pid in server.seen:
            with contextlib.suppress(ProcessLookupError):
                if _is_of_ours(pid):
                    os.kill(pid, signal.SIGKILL)  # an orphan
        await process.stdout.read()  # until everybody who could write there is gone


async def _end(process: asyncio.subprocess.Process) -> str:
    if process.returncode is None:
        process.terminate()
        try:
            await asyncio.wait_for(process.wait(), ENDS_WITHIN)
        except asyncio.TimeoutError:
            process.kill()
            await process.wait()
            return f"killed after {ENDS_WITHIN:.0f} s"
    return f"exit code {process.returncode}"


def _is_of_ours(pid: int) -> bool:
    """Whether that process is a worker still, and not a stranger with its number."""
    try:
        return b"multiprocessing" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
