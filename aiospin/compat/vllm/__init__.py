"""The broadcast queue of vLLM, on aiospin: change one import, keep the code.

    from aiospin.compat.vllm import MessageQueue

`install()` makes a running vLLM use it; `python -m aiospin.compat.vllm check` says what that would change.

WARNING: objects travel by pickle, as they do there: a message runs code in the process that receives it. Only processes
that trust each other may share such a queue. aiospin itself never pickles unless it is asked to by name.
"""

from __future__ import annotations

from aiospin.compat.vllm._handle import Handle, NoRelay
from aiospin.compat.vllm._install import InstallRefused, UnknownVersion, VllmNotFound, install, uninstall
from aiospin.compat.vllm._memory import check_shm_free_space
from aiospin.compat.vllm._queue import MessageQueue, WrongRole
from aiospin.compat.vllm._spin import memory_fence, spinloop

__all__ = [
    "Handle",
    "InstallRefused",
    "MessageQueue",
    "NoRelay",
    "UnknownVersion",
    "VllmNotFound",
    "WrongRole",
    "check_shm_free_space",
    "install",
    "memory_fence",
    "spinloop",
    "uninstall",
]
