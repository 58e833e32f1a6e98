"""A package named vllm with the interface of the real one's broadcast queue and nothing behind it, written to a folder.

Guarantee: what a test imports of it is gone from `sys.modules` afterwards, and `install()` undone.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from aiospin.compat.vllm import _install, _survey

KNOWN = _survey.KNOWN[-1]
QUEUE = "distributed/device_communicators/shm_broadcast.py"

SOURCES = {
    "__init__.py": "",
    "distributed/__init__.py": "",
    "distributed/device_communicators/__init__.py": "",
    QUEUE: '''\
"""Says where it comes from."""

from contextlib import contextmanager
from dataclasses import dataclass, field


def memory_fence():
    pass


def check_shm_free_space(required_bytes, shm_path="/dev/shm", *, allocation_name="memory"):
    pass


class RingOfTheirs:
    pass


@dataclass
class Handle:
    local_reader_ranks: list = field(default_factory=list)
    buffer_handle: tuple | None = None
    local_subscribe_addr: str | None = None
    local_notify_addr: str | None = None
    remote_subscribe_addr: str | None = None
    remote_addr_ipv6: bool = False
    tensor_arena_handle: tuple | None = None


class MessageQueue:
    def __init__(
        self,
        n_reader,
        n_local_reader,
        local_reader_ranks=None,
        max_chunk_bytes=1024,
        max_chunks=10,
        connect_ip=None,
        enable_shm_tensor_arena=False,
    ):
        pass

    class Clock:
        pass

    def _look(self, flags):
        pass

    def export_handle(self):
        pass

    @staticmethod
    def create_from_handle(handle, rank):
        pass

    def wait_until_ready(self):
        pass

    def shutdown(self):
        pass

    @contextmanager
    def acquire_write(self, timeout=None):
        yield

    @contextmanager
    def acquire_read(self, timeout=None, indefinite=False):
        yield

    def enqueue(self, obj, timeout=None):
        pass

    def dequeue(self, timeout=None, indefinite=False):
        pass

    @staticmethod
    def recv(socket, timeout):
        pass

    def broadcast_object(self, obj=None):
        pass

    @staticmethod
    def create_from_process_group_single_reader(pg, max_chunk_bytes, max_chunks, reader_rank=0, blocking=False):
        pass

    @staticmethod
    def create_from_process_group(
        pg, max_chunk_bytes, max_chunks, writer_rank=0, external_writer_handle=None, blocking=True
    ):
        pass
''',
    # imported before `install()` in the tests, and after
    "executor.py": f"from {_survey.MODULE} import Handle, MessageQueue as Queue, RingOfTheirs\n",
    "late.py": f"from {_survey.MODULE} import MessageQueue\n",
    "distributed/arena.py": "from .device_communicators.shm_broadcast import memory_fence, check_shm_free_space\n",
    "distributed/tables.py": f"def fill():\n    from {_survey.MODULE} import check_shm_free_space\n",
    "distributed/talk.py": "# of shm_broadcast, and imports nothing from it\n",
    "distributed/old.py": "import shm_broadcast; print 'shm_broadcast'\n",
    "spinloop.py": "def spinloop(buffer, callback, timeout=0.0):\n    pass\n",
}


class Tree:
    """The package, of which a test may change a file before it is looked at."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.package = root / "vllm"
        for path, text in SOURCES.items():
            self.write(path, text)
        self.describe(KNOWN)

    def write(self, path: str, text: str) -> None:
        place = self.package / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")

    def change(self, before: str, after: str) -> None:
        """In the module of the queue."""
        text = (self.package / QUEUE).read_text(encoding="utf-8")
        assert text.count(before) == 1
        self.write(QUEUE, text.replace(before, after))

    def describe(self, version: str | None, *, entry_point: bool = True) -> None:
        """The metadata of an installed version; None for a checkout that has none."""
        metadata = self.root / "vllm.dist-info"
        metadata.mkdir(exist_ok=True)
        named = "" if version is None else f"Name: vllm\nVersion: {version}\n"
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\n{named}", encoding="utf-8")
        point = f"[{_survey.PLUGINS}]\n{_survey.ENTRY_POINT} = aiospin.compat.vllm._install:plugin\n"
        (metadata / "entry_points.txt").write_text(point if entry_point else "", encoding="utf-8")

    @property
    def environment(self) -> dict[str, str]:
        """For a process that shall find it first."""
        path = filter(None, (str(self.root), os.environ.get("PYTHONPATH")))
        return {**os.environ, "PYTHONPATH": os.pathsep.join(path)}

    def module(self, name: str) -> ModuleType:
        return importlib.import_module(f"vllm.{name}")

    @property
    def broadcast(self) -> ModuleType:
        return importlib.import_module(_survey.MODULE)


def forget() -> None:
    """What was imported of it."""
    for name in [name for name in sys.modules if name.partition(".")[0] in ("vllm", "vllm_elsewhere")]:
        del sys.modules[name]


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tree]:
    """First on the path."""
    for variable in ("VLLM_PLUGINS", _install.SWITCH, _install._FOR_RAY):
        monkeypatch.delenv(variable, raising=False)
    root = tmp_path / "site"
    made = Tree(root)
    monkeypatch.syspath_prepend(str(root))
    yield made
    _install.uninstall()
    assert not {_install.SWITCH, _install._FOR_RAY} & set(os.environ)
    forget()
