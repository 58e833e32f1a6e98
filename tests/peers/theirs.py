"""vLLM's own MessageQueue, without the rest of vLLM: their module as it is, over stand-ins for its heavy imports.

    import theirs
    theirs.load().MessageQueue

Guarantee: what is measured is their file, unchanged, and so are the small modules that it takes functions from
(`REAL`); only what would import a model server is stood in for (`stand_ins`), and none of that runs while messages
pass. Importing this module is enough to unpickle their handles, which is how spawned processes get by.
Assumption: PEERS_VLLM names the folder that holds the unpacked `vllm`, as `environment` makes it; `regex`, `urllib3`,
`psutil`, `pyzmq` and `torch` can be imported.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

FOLDER = "PEERS_VLLM"
SPINNING = "VLLM_USE_SPINLOOP_EXT"
QUEUE = "vllm.distributed.device_communicators.shm_broadcast"

# Packages whose own `__init__` imports a model server. Here they are empty, and hold the real modules below.
BARE = ("vllm", "vllm.distributed", "vllm.distributed.device_communicators", "vllm.utils")

# What is taken from the wheel, and nothing else.
REAL = (
    "vllm/distributed/device_communicators/shm_broadcast.py",
    "vllm/distributed/device_communicators/shm_tensor_arena.py",
    "vllm/distributed/utils.py",
    "vllm/envs.py",
    "vllm/spinloop.abi3.so",
    "vllm/utils/cpu_resource_utils.py",
    "vllm/utils/network_utils.py",
)

# Libraries that their native wait is linked to and takes no symbol from. They are on machines with a GPU; elsewhere
# `environment` compiles empty ones of these names, beside `vllm`.
NEEDLESS = ("libnvrtc.so.13", "libc10_cuda.so", "libtorch_cuda.so")


def _package(name: str, folder: Path) -> ModuleType:
    module = ModuleType(name)
    module.__path__ = [str(folder.joinpath(*name.split(".")))]
    return module


@contextlib.contextmanager
def _as_it_is() -> Iterator[None]:
    """Stand in for the silencing of standard output around a group's set-up."""
    yield


def _all_here(group: Any, source_rank: int) -> list[bool]:
    """Stand in for the search for ranks on other hosts. There are none."""
    return [True] * (group.world_size if hasattr(group, "world_size") else group.size())


def stand_ins() -> dict[str, dict[str, Any]]:
    """Return the modules that are stood in for, and what each offers."""
    return {
        "vllm.logger": {"init_logger": logging.getLogger},
        "vllm.platforms": {"current_platform": None},  # asked for nothing, given the next two
        "vllm.platforms.interface": {"get_assigned_physical_gpu_ids": lambda: range(8)},  # one host of eight
        "vllm.distributed.parallel_state": {"in_the_same_node_as": _all_here},
        "vllm.utils.system_utils": {"suppress_stdout": _as_it_is},
    }


def _spare_booleans() -> None:
    """Give True and False references to lose. Their native wait takes one too many of the answer it returns.

    Before Python 3.12, where these two became immortal, the process aborts after a few hundred calls.
    """
    if sys.version_info < (3, 12):
        for answer in (True, False):
            ctypes.c_ssize_t.from_address(id(answer)).value += 1 << 40


def _link(folder: Path) -> None:
    """Load what their native wait is linked to, before the first handle that is unpickled imports it."""
    _spare_booleans()
    import_module("torch")
    for library in NEEDLESS:
        empty = folder / library
        if empty.is_file():  # the loader takes what is loaded under the same name
            ctypes.CDLL(str(empty))


def install(folder: Path) -> None:
    """Let `vllm`'s queue be imported from `folder`. Idempotent; raises FileNotFoundError if it is not there."""
    if QUEUE in sys.modules or "vllm" in sys.modules:
        return
    missing = [name for name in REAL if not (folder / name).is_file()]
    if missing:
        raise FileNotFoundError(f"{folder} lacks {missing[0]}: `python tests/peers/side_by_side.py` fetches it")
    for name in BARE:
        sys.modules[name] = _package(name, folder)
    for name, contents in stand_ins().items():
        module = ModuleType(name)
        vars(module).update(contents)
        sys.modules[name] = module
    if os.environ.get(SPINNING) == "1":
        _link(folder)


def load() -> ModuleType:
    """Return their module `shm_broadcast`. Raises ImportError if it has not the wait that was asked for."""
    module = import_module(QUEUE)
    wanted = os.environ.get(SPINNING) == "1"
    if module.SPINLOOP_EXT_ENABLED != wanted:
        raise ImportError(f"{SPINNING} is {wanted}, and their native wait is {module.SPINLOOP_EXT_ENABLED}")
    return module


if FOLDER in os.environ:
    install(Path(os.environ[FOLDER]))
