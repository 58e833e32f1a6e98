"""Models by name, as a worker process hosts them: plain classes with one method, which know nothing of any transport.

magika      tells what kind of file some bytes are, with onnxruntime (`magika_model.py`)
noop        answers at once, so that what remains is the transport's share of the time
noop:20     answers after 20 ms of doing nothing, to see the server under load without computing anything

Guarantee: importing this file imports no model.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Protocol, TypeAlias

Row: TypeAlias = tuple[str, str, str, str, float]
"""Label, description, MIME type, group, score."""


class Model(Protocol):
    """What a worker hosts."""

    def predict(self, *files: memoryview | bytes) -> tuple[int, Sequence[Row]]:
        """One row for each file; and the pid of this process, for the front end to tell workers apart."""
        ...


class Noop:
    """Takes every file for nothing at all."""

    _row: Row = ("noop", "Nothing was looked at", "application/octet-stream", "none", 1.0)

    def __init__(self, seconds: float = 0.0) -> None:
        self._seconds = seconds

    def predict(self, *files: memoryview | bytes) -> tuple[int, Sequence[Row]]:
        """The same row for each."""
        if self._seconds:
            time.sleep(self._seconds)
        return os.getpid(), [self._row] * len(files)


def check_name(name: str) -> None:
    """ValueError unless `make_model` knows the name."""
    kind, colon, milliseconds = name.partition(":")
    if name == "magika" or (kind == "noop" and milliseconds.isdecimal() == bool(colon)):
        return
    raise ValueError(f"model must be magika, noop, or noop:MILLISECONDS, got {name!r}")


def make_model(name: str) -> Model:
    """Construct the model of that name, in the worker. ValueError for an unknown one."""
    check_name(name)
    if name == "magika":
        from model_server.magika_model import MagikaModel

        return MagikaModel()
    return Noop(int(name.partition(":")[2] or 0) / 1000)
