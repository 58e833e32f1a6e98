"""From what a scenario's process did to a verdict: "ok", "hangs" or "wrong: ...".

Guarantee: pure; what is not understood is "wrong" and never "ok".
Assumption: the process printed events as `peers_events` does, and ended with 0 only if all was as it should be.
"""

from __future__ import annotations

import json
import re
import signal
from dataclasses import dataclass, field
from typing import Any

OK = "ok"
HANGS = "hangs"

# The line of a traceback that says what was raised, as `Kind: text` or `package.Kind`.
RAISED = re.compile(r"^(?:\w+\.)*(?P<kind>[A-Z]\w*)(?::\s(?P<text>.*))?$")
ABORTED = re.compile(r"^Fatal Python error: (?P<text>.*)$")
LONGEST = 160  # characters of a verdict


@dataclass
class Ended:
    """What a bounded process left behind."""

    status: int | None  # None if its time was over
    events: list[dict[str, Any]] = field(default_factory=list)
    errors: str = ""

    @property
    def waited(self) -> bool:
        """Whether what is under test had begun."""
        return any(event["event"] == "waits" for event in self.events)

    @property
    def segments(self) -> list[str]:
        """The shared-memory files that it may have left."""
        return [event["name"] for event in self.events if event["event"] == "segment"]


def parse(line: str) -> dict[str, Any] | None:
    """Return the event that a line is, or None: anything else may be printed, too."""
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) and isinstance(found.get("event"), str) else None


def cause(errors: str) -> str:
    """Return what was raised first, from standard error: what a peer raised comes before what that led to."""
    last = ""
    in_traceback = False
    for line in errors.splitlines():
        last = line.strip() or last
        if match := ABORTED.match(line):
            return match["text"]
        if line.startswith("Traceback"):
            in_traceback = True
        elif in_traceback and (match := RAISED.match(line)):
            kind = "" if match["kind"] == "AssertionError" and match["text"] else match["kind"]
            return ": ".join(filter(None, (kind, match["text"])))
    return last


def shortened(text: str) -> str:
    """Return one line that fits a table."""
    line = " ".join(text.split())
    return line if len(line) <= LONGEST else line[: LONGEST - 3] + "..."


def verdict(ended: Ended) -> str:
    """Return what there is to say of it."""
    if ended.status == 0:
        return OK
    if ended.status is None:
        return HANGS if ended.waited else "wrong: it did not begin in time"
    why = cause(ended.errors)
    if ended.status < 0:
        name = signal.Signals(-ended.status).name
        return shortened(f"wrong: {name}: {why}" if why else f"wrong: {name}")
    return shortened(f"wrong: {why}" if why else f"wrong: exit status {ended.status}")
