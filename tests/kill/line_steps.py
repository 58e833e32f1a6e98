"""Every line of the library as a place where a process can be stopped.

Guarantee: between the report of a step and the answer to it nothing of the library runs in that thread. A step is named
after its place, `file:function:line#occurrence`, so that it is found again although others before it come or go.
Assumption: one thread acts; the step is the line that comes next, so everything before it has been done.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import aiospin

_ROOT = str(Path(aiospin.__file__).resolve().parent)


class Steps:
    """Notes the lines that are run; calls `reached(name)` at the one that is asked for."""

    def __init__(self, at: str | None, reached: Callable[[str], None]) -> None:
        self.names: list[str] = []
        self._at = at
        self._reached = reached
        self._seen: dict[str, int] = {}

    def step(self, place: str) -> None:
        """Come to a place."""
        self._seen[place] = self._seen.get(place, 0) + 1
        name = f"{place}#{self._seen[place]}"
        self.names.append(name)
        if name == self._at:
            self._reached(name)

    def __enter__(self) -> Steps:
        sys.settrace(self._call)
        return self

    def __exit__(self, *error: object) -> None:
        sys.settrace(None)

    def _call(self, frame: FrameType, event: str, argument: Any) -> Any:
        return self._line if frame.f_code.co_filename.startswith(_ROOT) else None

    def _line(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            code = frame.f_code
            self.step(f"{code.co_filename[len(_ROOT) + 1 : -3]}:{code.co_name}:{frame.f_lineno}")
        return self._line
