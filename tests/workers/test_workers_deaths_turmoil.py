"""One short turmoil for each kind of worker. Longer ones: .ci/workers."""

from __future__ import annotations

from pathlib import Path

import pytest
from turmoil import Turmoil, warm_up


@pytest.fixture
def warm(forkserver: None) -> None:
    """Whatever is made once and stays is there."""
    warm_up()


@pytest.mark.parametrize("seed", [3, 6])
def test_a_turmoil_breaks_no_promise(warm: None, leaves_nothing: object, tmp_path: Path, seed: int) -> None:
    """Async workers, and sync ones. The dice of these seeds lead to every kind of end."""
    turmoil = Turmoil(seed, 2.0, tmp_path)
    line = turmoil.run()
    for ending in ("result", "WorkerDied", "CancelledError", "TimeoutError", "Refused"):
        assert turmoil.endings[ending] > 0, f"no {ending}: {line}"
    assert turmoil.violence["kill"] > 0, line
