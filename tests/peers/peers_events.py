"""What a scenario's process tells the runner while it goes on: one JSON object a line, on standard output.

    {"event": "segment", "name": "psm_1b2c"}     a shared-memory file that a kill would leave behind
    {"event": "waits"}                           the call under test begins; if nothing more comes, it hangs
    {"event": "figures", ...}                    what a benchmark has measured

Guarantee: a line is written in one call, so those of several processes do not mix.
Assumption: standard output is the runner's pipe, and spawned processes inherit it.
"""

from __future__ import annotations

import json
import os
from typing import Any


def tell(event: str, **details: Any) -> None:
    """Write one line to the runner."""
    os.write(1, (json.dumps({"event": event, **details}) + "\n").encode())


def waits() -> None:
    """Say that what is under test begins now."""
    tell("waits")
