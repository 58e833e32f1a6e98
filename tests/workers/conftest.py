"""What the tests of deaths, starts and stops get: a folder of traces, and a check that nothing is left over."""

from __future__ import annotations

from multiprocessing.forkserver import ensure_running, set_forkserver_preload
from pathlib import Path

import pytest
from traces import Traces


@pytest.fixture(scope="session")
def forkserver() -> None:
    """Multiprocessing's own process, which stays. What it has imported by now its children have."""
    set_forkserver_preload(["aiospin.workers", "mortal"])
    ensure_running()


@pytest.fixture
def traces(forkserver: None, leaves_nothing: object, tmp_path: Path) -> Traces:
    """Of this test alone. Its end fails if a process, a thread or a descriptor is left over."""
    return Traces(tmp_path)
