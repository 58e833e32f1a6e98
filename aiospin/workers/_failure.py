"""What went wrong in a worker, told in the group's process: the same type, where this process knows it.

An exception travels as plain text and plain values. It comes back as an instance of the class of that name if that
class is imported here already; its `__init__` is not run, so that a message cannot run anything. `__cause__` is a
RemoteTraceback with the worker's own traceback.

Guarantee: describing never raises, whatever `str(error)` does.
"""

from __future__ import annotations

import json
import sys
import traceback
from typing import Any, Final

from aiospin._errors import AiospinError, PeerDied

_PLAIN: Final = (str, int, float, bool, type(None))


class RemoteError(AiospinError):
    """A worker raised an exception whose type is not known in this process. `type_name` says which."""

    def __init__(self, type_name: str, text: str) -> None:
        super().__init__(type_name, text)
        self.type_name = type_name
        self.text = text

    def __str__(self) -> str:
        return f"{self.type_name}: {self.text}"


class RemoteTraceback(Exception):
    """The traceback in the worker, as the cause of what is raised here."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f"\n{self.text}"


class StartFailed(AiospinError):
    """A worker could not be started: its import or constructor raised, or its process ended before it was ready.

    `rank` says which; `__cause__` is what it raised, if it got that far.
    """

    def __init__(self, rank: int, reason: str) -> None:
        super().__init__(rank, reason)
        self.rank = rank
        self.reason = reason

    def __str__(self) -> str:
        return f"worker {self.rank} could not be started: {self.reason}"


class WorkerDied(PeerDied):
    """A worker died. `rank`, `pid`; `reason` says how it ended; `name` is the method that it had, `deliveries` how many
    workers had this call by then; "" and 0 when it is about no call.
    """

    def __init__(self, rank: int, pid: int, reason: str, name: str = "", deliveries: int = 0) -> None:
        super().__init__(rank, pid, "pidfd")
        self.args = (rank, pid, reason, name, deliveries)
        self.reason = reason
        self.name = name
        self.deliveries = deliveries

    def __str__(self) -> str:
        text = f"worker {self.rank} (pid {self.pid}) {self.reason}"
        if self.name:
            text += f" while it had {self.name}()"
        if self.deliveries > 1:
            text += f", as had {self.deliveries - 1} before it" if self.deliveries > 2 else ", as had one before it"
        return text


def copy_of(error: BaseException) -> BaseException:
    """Another instance that says the same."""
    kind = type(error)
    twin = kind.__new__(kind, *error.args)
    twin.args = error.args
    vars(twin).update(vars(error))
    twin.__cause__ = error.__cause__
    return twin


def describe(error: BaseException) -> bytes:
    """The exception as JSON."""
    kind = type(error)
    return json.dumps(
        {
            "module": kind.__module__,
            "name": kind.__qualname__,
            "args": [arg if isinstance(arg, _PLAIN) else _text(arg) for arg in error.args],
            "state": {key: value for key, value in vars(error).items() if isinstance(value, _PLAIN)},
            "text": _text(error),
            "traceback": "".join(traceback.format_exception(kind, error, error.__traceback__)),
        }
    ).encode("utf-8", "backslashreplace")


def revive(described: bytes | memoryview) -> Exception:
    """The exception again, with the worker's traceback as its cause."""
    fields = json.loads(bytes(described))
    kind = _known(fields["module"], fields["name"])
    error: Exception
    if kind is None:
        error = RemoteError(f"{fields['module']}.{fields['name']}", fields["text"])
    else:
        args = tuple(fields["args"])
        error = kind.__new__(kind, *args)
        error.args = args
        vars(error).update(fields["state"])
    error.__cause__ = RemoteTraceback(fields["traceback"])
    return error


def _known(module: str, name: str) -> type[Exception] | None:
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found if isinstance(found, type) and issubclass(found, Exception) else None


def _text(value: object) -> str:
    try:
        return str(value)
    except Exception as error:  # noqa: BLE001 - whatever a broken __str__ raises
        return f"<{type(value).__qualname__} whose text fails with {type(error).__qualname__}>"
