"""The sides that are compared: what each is called, what environment it runs in, and where its MessageQueue is.

Guarantee: a scenario and a benchmark get a side by name and do the same whichever it is; every segment that a kill
would leave behind was told before.
Assumption: a process plays one side, since the environment is read when the modules are imported.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import theirs
from peers_events import tell

CHANGED_BY_USERS = ("VLLM_", "AIOSPIN_", "PYTHON")
"""Variables with these beginnings are not passed on: both sides run as they come."""


@dataclass(frozen=True)
class Side:
    """One way to have a MessageQueue."""

    name: str
    title: str
    variables: Mapping[str, str] = field(default_factory=dict)

    def make(self, *arguments: Any, **named: Any) -> Any:
        """Make a queue, as its writer."""
        queue = queues(self.name).MessageQueue(*arguments, **named)
        if self.name != OURS.name:
            tell("segment", name=queue.handle.buffer_handle[3])
        return queue

    def attach(self, handle: Any, rank: int) -> Any:
        """Return the end of `rank` of the queue that `handle` names."""
        return queues(self.name).MessageQueue.create_from_handle(handle, rank)

    def environment(self, vllm: str, scratch: str) -> dict[str, str]:
        """Return the environment of its processes. Sockets go to `scratch`; one thread computes."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(CHANGED_BY_USERS)}
        kept |= {"AIOSPIN_REQUIRE_EXTENSIONS": "1", "PYTHONWARNINGS": "ignore", "OMP_NUM_THREADS": "1"}
        if self.name != OURS.name:
            kept |= {theirs.FOLDER: vllm, "VLLM_RPC_BASE_PATH": scratch}
        return kept | dict(self.variables)


THEIRS = Side("theirs", "vLLM", {theirs.SPINNING: "0"})
SPINNING = Side("theirs-spinning", "vLLM, its native wait", {theirs.SPINNING: "1"})
OURS = Side("ours", "aiospin")

SIDES: Mapping[str, Side] = {side.name: side for side in (THEIRS, SPINNING, OURS)}


def queues(name: str) -> Any:
    """Return the module that holds MessageQueue and Handle of the side `name`."""
    if name != OURS.name:
        return theirs.load()
    from aiospin.compat import vllm

    return vllm
