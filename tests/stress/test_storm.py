"""One short storm. Longer ones: .ci/storm."""

from __future__ import annotations

import pytest
from storm import Storm


@pytest.mark.usefixtures("leaves_nothing")
def test_a_storm_breaks_no_promise() -> None:
    """The dice of this seed lead to every kind of operation, to deaths on both sides and to late joiners."""
    figures = Storm(seed=4, seconds=2.5).run()
    counts = figures.counts
    assert figures.messages > 0
    for what in ("cancels", "time-outs", "views", "late releases", "forgotten", "moves", "detaches", "joins"):
        assert counts[what] > 0, f"no {what}: {figures.line()}"
    assert figures.kills + figures.self_kills > 0, figures.line()
