"""The program of one scenario of one side, and of one side's benchmarks.

    python peers_play.py scenario theirs reader-killed     exit status 0 if all was as it should be
    python peers_play.py benchmarks ours                   orders on standard input, figures on standard output

Guarantee: what a scenario raised is the last line of standard error. Between two orders no queue is open and both
processes of the side sleep, so that the others can be measured.
Assumption: run by `peers_run`, which bounds its time and ends its process group.
"""

from __future__ import annotations

import json
import sys

from peers_benchmarks import DRIVES
from peers_events import tell
from peers_link import Link, find
from peers_sides import SIDES
from peers_titles import SCENARIOS


def benchmarks(side: str) -> None:
    """Measure what the orders say."""
    with Link(SIDES[side]) as link:
        tell("ready")
        for line in sys.stdin:
            order = json.loads(line)
            figures = DRIVES[order["benchmark"]](link, order["scale"])
            link.close_queues()
            tell("figures", figures=dict(figures))


def main(kind: str, side: str, *scenario: str) -> None:
    """Play what the arguments say."""
    if kind == "benchmarks":
        benchmarks(side)
    else:
        find(SCENARIOS[scenario[0]].play)(SIDES[side])


if __name__ == "__main__":
    main(*sys.argv[1:])
