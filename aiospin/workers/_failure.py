"""What went wrong in a worker, told in the group's process: the same type, where this process knows it.

An exception travels as plain text and plain values. It comes back as an instance of the class of that name if that
class is imported here already and what could travel makes it say the same; its `__init__` is not run, so that a
message cannot run anything. `__cause__` is a RemoteTraceback with the worker's own traceback.

Guarantee: describing never raises, whatever `str(error)` does.
"""

from __future__ import annotations

import contextlib
import json
import sys
import traceback
from collections.abc import Mapping
from typing import Any

from aiospin._errors import AiospinError, PeerDied
from aiospin.workers._envelope import CorruptMessage
from aiospin.workers._plain import from_plain, to_plain


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
    fields: dict[str, Any] = {"module": str(kind.__module__), "name": kind.__qualname__, "text": _text(error)}
    try:
        fields["args"] = [to_plain(arg, _text) for arg in error.args]
        fields["state"] = _state(error)
        fields["traceback"] = "".join(traceback.format_exception(kind, error, error.__traceback__))
        if kind.__module__ == "builtins":
            fields["made_of"] = [to_plain(arg, _text) for arg in error.__reduce__()[1]]
        return _as_json(fields)
    except Exception as failure:  # noqa: BLE001 - an exception may fail at whatever it is asked
        trace = f"{fields['name']}: {fields['text']} (it cannot be described: {type(failure).__name__})"
        return _as_json({**fields, "args": [fields["text"]], "state": {}, "traceback": trace, "made_of": None})


def _state(error: BaseException) -> dict[str, object]:
    """Attributes, notes among them, that can travel as what they are."""
    found: dict[str, object] = {}
    for name, value in vars(error).items():
        with contextlib.suppress(TypeError):
            found[name] = to_plain(value)
    return found


def revive(described: bytes | memoryview) -> Exception:
    """The exception again, with the worker's traceback as its cause."""
    try:
        fields = json.loads(bytes(described))
    except ValueError as error:
        raise CorruptMessage(f"an exception cannot be read: {error}") from error
    kind = _known(fields["module"], fields["name"])
    made: Exception | None = None
    if kind is not None:
        try:
            made = _made(kind, fields)
            says_the_same = str(made) == fields["text"]
            if not says_the_same and kind.__str__ is not BaseException.__str__:
                made = None  # it makes its text of what could not travel
        except Exception:  # noqa: BLE001 - a class may refuse in any way to be made anew
            made = None
    if made is None:
        module = "" if fields["module"] == "builtins" else f"{fields['module']}."
        made = RemoteError(f"{module}{fields['name']}", fields["text"])
    made.__cause__ = RemoteTraceback(fields["traceback"])
    return made


def _made(kind: type[Exception], fields: Mapping[str, Any]) -> Exception:
    if fields.get("made_of") is not None and kind.__module__ == "builtins":
        made = kind(*map(from_plain, fields["made_of"]))  # which sets what is in no attribute: errno, start, end, ...
    else:
        args = tuple(map(from_plain, fields["args"]))
        made = kind.__new__(kind, *args)
        made.args = args
    vars(made).update({name: from_plain(value) for name, value in fields["state"].items()})
    return made


def _known(module: str, name: str) -> type[Exception] | None:
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    if not isinstance(found, type) or not issubclass(found, Exception):
        return None
    # These two mean something else to who awaits.
    return None if issubclass(found, (StopIteration, StopAsyncIteration)) else found


def _text(value: object) -> str:
    try:
        return str(value)
    except Exception as error:  # noqa: BLE001 - whatever a broken __str__ raises
        return f"<{type(value).__qualname__} whose text fails with {type(error).__qualname__}>"


def _as_json(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields).encode("ascii")
