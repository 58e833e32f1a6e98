"""One round of one case in a process of its own: `python -m tests.bench.case SCENARIO SUBJECT [--quick]`.

Prints the figures as one JSON object. An alarm ends it after LIFETIME seconds; a case that raises ends it with its
traceback, of which the runner shows the last line.
"""

from __future__ import annotations

import json
import signal
import sys

from .companion import LIFETIME
from .scenarios import SCENARIOS
from .subjects import load_subjects


def main(argv: list[str]) -> None:
    signal.alarm(LIFETIME)
    scenario = next(scenario for scenario in SCENARIOS if scenario.name == argv[0])
    if "--quick" in argv:
        scenario = scenario.quick()
    print(json.dumps(load_subjects()[argv[1]].cases[scenario.name](scenario.load)))


if __name__ == "__main__":
    main(sys.argv[1:])
