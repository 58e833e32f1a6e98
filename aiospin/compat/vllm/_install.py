"""install(): a vLLM that runs in this process, and those that it starts, use the queue of this package.

Guarantee: all or nothing. Whatever speaks against it is raised before anything is changed; modules of vLLM that are
imported already, and those that will be, have our names then, and `uninstall()` gives theirs back. A vLLM that did not
ask is left alone.
Assumption: queues that were made before keep their class, so this comes before the engine.
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any, Final

from aiospin import _flags
from aiospin._errors import AiospinError
from aiospin.compat.vllm import _survey

SWITCH: Final = "AIOSPIN_VLLM"
"""The environment variable with which `install()` asks the processes that vLLM starts to do the same."""

_FOR_RAY: Final = (
    "VLLM_RAY_EXTRA_ENV_VARS_TO_COPY"  # Ray's workers inherit nothing but what vLLM copies, and this names
)

_SPINLOOP: Final = "vllm.spinloop"

_lock = threading.Lock()
_replaced: dict[str, tuple[Any, Any]] = {}  # by name: theirs, and ours in its place
_environment_before: dict[str, str | None] = {}


class InstallRefused(AiospinError):
    """`install()` changed nothing, and `reasons` say why."""

    def __init__(self, *reasons: str) -> None:
        super().__init__(*reasons)
        self.reasons = reasons

    def __str__(self) -> str:
        return "; ".join(self.reasons)


class UnknownVersion(InstallRefused):
    """The vLLM that is installed has not been compared with this package, or differs from what was compared."""


class VllmNotFound(InstallRefused, ImportError):
    """There is no vLLM to patch."""


def install() -> None:
    """Have vLLM use this package's MessageQueue, Handle, memory_fence, check_shm_free_space and spinloop.

    Call it before the engine is made. It imports their module, replaces the names there and in every module of vLLM
    that has them, and sets AIOSPIN_VLLM=1 for processes that will be started, which then do the same. Setting that
    variable by hand switches a `vllm serve`. Calling it again changes nothing.

    Raises, before anything is changed: VllmNotFound without a vLLM; UnknownVersion for one whose queue is not known,
    with the reasons, as `python -m aiospin.compat.vllm check` tells them; InstallRefused if worker processes would not
    take part, or something else has replaced their queue; and whatever importing their module raises.
    """
    with _lock:
        if _installed():
            return
        ours = _survey.replacements()
        _require_known(_survey.survey(importers=False, ours=ours))
        theirs = _originals(importlib.import_module(_survey.MODULE), ours)
        _replaced.update(theirs)
        _exchange({id(old): new for old, new in theirs.values()})
        _ask_children()


def uninstall() -> None:
    """Give vLLM its own names back, in modules imported since, too. Queues that were made meanwhile stay ours.

    Without an `install()` before, nothing happens.
    """
    with _lock:
        _exchange({id(new): old for old, new in _replaced.values()})
        _replaced.clear()
        for name, value in _environment_before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        _environment_before.clear()


def plugin() -> None:
    """What vLLM calls in each of its processes: `install()` where AIOSPIN_VLLM=1 asks for it, nothing elsewhere.

    Raises what `install()` does, which ends that vLLM: processes with different queues would wait for ever.
    """
    if _flags.flag(SWITCH):
        install()


def _installed() -> bool:
    """Whether their module has ours. It has not if somebody reloaded it."""
    module = sys.modules.get(_survey.MODULE)
    names = _survey.replacements() if _replaced and module is not None else {}
    return bool(names) and all(getattr(module, name, None) is one for name, one in names.items())


def _require_known(found: _survey.Survey) -> None:
    if found.place is None:
        raise VllmNotFound(*found.reasons)
    if found.unknown:
        raise UnknownVersion(*found.reasons)
    if found.left_behind:
        raise InstallRefused(*found.reasons)


def _originals(module: ModuleType, ours: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """What is to be exchanged for what. InstallRefused for a name that somebody else has exchanged already."""
    theirs: dict[str, tuple[Any, Any]] = {}
    for name, replacement in ours.items():
        original = vars(module).get(name)
        origin = getattr(original, "__module__", None)
        if origin != _survey.MODULE:
            raise InstallRefused(f"{name} in {_survey.MODULE} is {original!r}, which comes from {origin}")
        theirs[name] = (original, replacement)
    spinning = sys.modules.get(_SPINLOOP)
    if spinning is not None and hasattr(spinning, "spinloop"):
        from aiospin.compat.vllm._spin import spinloop

        theirs["spinloop"] = (spinning.spinloop, spinloop)
    return theirs


def _ask_children() -> None:
    names = [name for name in os.environ.get(_FOR_RAY, "").split(",") if name.strip()]
    if SWITCH not in map(str.strip, names):
        names.append(SWITCH)
    for name, value in ((SWITCH, "1"), (_FOR_RAY, ",".join(names))):
        _environment_before.setdefault(name, os.environ.get(name))
        os.environ[name] = value


def _exchange(wanted: Mapping[int, Any]) -> None:
    """Under whatever name a module of vLLM has an object of these identities, put the other one."""
    for module in _modules():
        for name, value in list(vars(module).items()):
            if id(value) in wanted:
                setattr(module, name, wanted[id(value)])


def _modules() -> Iterator[ModuleType]:
    """vLLM's, and those of packages that extend it, as their names say."""
    for name, module in list(sys.modules.items()):
        top = name.partition(".")[0]
        if (top == "vllm" or top.startswith("vllm_")) and isinstance(module, ModuleType):
            yield module
