"""What is found out about a vLLM without importing it, and what `check` prints of it."""

from __future__ import annotations

import importlib.metadata
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from vllm_tree import KNOWN, QUEUE, Tree, tree

from aiospin.compat.vllm import __main__ as command
from aiospin.compat.vllm import _survey
from aiospin.compat.vllm._survey import Importer, survey

__all__ = ["tree"]


def unknown(**options: Any) -> str:
    """Why this vLLM is not known: the one reason that there is."""
    (reason,) = survey(importers=False, **options).unknown
    return reason


# what is accepted


@pytest.mark.parametrize("version", [*_survey.KNOWN, f"{KNOWN}+cu130"])
def test_a_known_version_is_accepted(tree: Tree, version: str) -> None:
    tree.describe(version)
    found = survey()
    assert (found.version, found.place, found.reasons) == (version, tree.package, ())
    assert found.names == ("MessageQueue", "Handle", "memory_fence", "check_shm_free_space")
    assert not [name for name in sys.modules if name.partition(".")[0] == "vllm"]


def test_those_who_import_its_names_are_found(tree: Tree) -> None:
    assert survey().importers == (
        Importer("vllm.distributed.arena", ("check_shm_free_space", "memory_fence")),
        Importer("vllm.distributed.tables", ("check_shm_free_space",)),
        Importer("vllm.executor", ("Handle", "MessageQueue")),
        Importer("vllm.late", ("MessageQueue",)),
    )


def test_a_package_that_imports_relatively_is_found(tree: Tree) -> None:
    tree.write("deep/__init__.py", "from ..distributed.device_communicators.shm_broadcast import Handle\n")
    tree.write("deep/far/away.py", "from ....outside.shm_broadcast import Handle\n")
    assert Importer("vllm.deep", ("Handle",)) in survey().importers
    assert not [one for one in survey().importers if one.module.endswith("away")]


def test_a_private_method_and_what_only_it_calls_may_differ(tree: Tree) -> None:
    tree.change("def _look(self, flags)", "def _look_again(self, flags, mask)")
    tree.change("def recv(socket, timeout)", "def recv(socket, timeout, flags)")
    assert survey().reasons == ()


def test_an_older_queue_with_fewer_arguments_is_accepted(tree: Tree) -> None:
    tree.change("        enable_shm_tensor_arena=False,\n", "")
    tree.change('*, allocation_name="memory"', "")
    tree.change("    tensor_arena_handle: tuple | None = None\n", "")
    assert survey().reasons == ()


# what is refused, and why


@pytest.mark.parametrize("version", ["0.34.0", "0.3.0", "0.33.0.dev7", "0.33", "1.0"])
def test_another_version_is_refused(tree: Tree, version: str) -> None:
    tree.describe(version)
    reason = unknown()
    assert f"vLLM {version} is not known" in reason
    assert all(one in reason for one in _survey.KNOWN)


def test_sources_without_metadata_are_refused(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", none)
    assert "no metadata" in unknown()


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        ("def enqueue(self, obj, timeout=None)", "def enqueue(self, obj, limit=None)", "enqueue takes 'limit', which"),
        (
            "def enqueue(self, obj, timeout=None)",
            "def enqueue(self, obj, *, fast=0)",
            "enqueue takes 'fast', which ours",
        ),
        (
            "def enqueue(self, obj, timeout=None)",
            "def enqueue(self, timeout=None, obj=0)",
            "'timeout' as number 1, and",
        ),
        (
            "def enqueue(self, obj, timeout=None)",
            "def enqueue(self, timeout=None)",
            "enqueue does not take 'obj', which",
        ),
        ("def enqueue(self, obj, timeout=None)", "def enqueue(self, *objs)", "enqueue takes any arguments"),
        ("def broadcast_object(self, obj=None)", "def broadcast(self, obj=None)", "broadcast has no counterpart"),
        (
            "        connect_ip=None,\n",
            "        port=0,\n        connect_ip=None,\n",
            "__init__ takes 'port', which ours",
        ),
        ("    def shutdown(self)", "    @staticmethod\n    def shutdown()", "shutdown is a static method"),
        (
            "    remote_addr_ipv6: bool",
            "    remote_port: int = 0\n    remote_addr_ipv6: bool",
            "Handle.remote_port has no",
        ),
        ("def memory_fence()", "def memory_fence(scope)", "memory_fence takes 'scope', which ours does not"),
        ("def memory_fence()", "def full_fence()", "defines no memory_fence"),
        ("def memory_fence():\n    pass", "class memory_fence:\n    pass", "memory_fence is a class"),
        ("class MessageQueue:", "class MessageQueue", "cannot be read"),
        ('"""Says where it comes from."""', "# coding: klingon", "cannot be read"),
    ],
)
def test_a_changed_interface_is_refused(tree: Tree, before: str, after: str, why: str) -> None:
    tree.change(before, after)
    reasons = survey(importers=False).unknown
    assert any(why in reason for reason in reasons), reasons


def test_a_method_that_is_static_here_alone_is_refused(tree: Tree) -> None:
    tree.change(
        "    @staticmethod\n    def create_from_handle(handle, rank)", "    def create_from_handle(self, handle, rank)"
    )
    assert "create_from_handle is no static method" in unknown()


def test_a_queue_that_has_moved_is_refused(tree: Tree) -> None:
    (tree.package / QUEUE).unlink()
    assert f"there is no {_survey.MODULE}" in unknown()


def test_no_vllm_at_all(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path != str(tree.root)])
    found = survey()
    assert (found.version, found.place, found.reasons) == (None, None, ("no vLLM is installed",))


def test_metadata_alone_is_no_vllm(tree: Tree) -> None:
    tree.package.rename(tree.root / "gone")
    assert unknown() == f"vLLM {KNOWN} is installed, and no package vllm found"


def test_a_folder_of_that_name_is_no_vllm(tree: Tree) -> None:
    (tree.package / "__init__.py").unlink()
    assert survey().place is None


def test_a_module_that_somebody_made_up_is_no_vllm(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vllm", ModuleType("vllm"))
    assert survey().place is None


def test_workers_that_would_not_take_part_are_told(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_PLUGINS", "adapters,others")
    (reason,) = survey(importers=False).reasons
    assert "VLLM_PLUGINS='adapters,others' does not name 'aiospin'" in reason
    monkeypatch.setenv("VLLM_PLUGINS", "adapters,aiospin")
    assert survey(importers=False).reasons == ()
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda *, group: ())
    (reason,) = survey(importers=False).left_behind
    assert "no entry point 'aiospin'" in reason


# the command


def run(tree: Tree, *arguments: str, redirection: str = "") -> tuple[int, str, str]:
    program = [sys.executable, "-W", "error", "-m", "aiospin.compat.vllm", *arguments]
    shell = ["sh", "-c", f'exec "$@" {redirection}', "sh", *program]
    done = subprocess.run(shell, capture_output=True, text=True, check=False, env=tree.environment)
    return done.returncode, done.stdout, done.stderr


def test_check_says_what_would_be_patched(tree: Tree) -> None:
    tree.write("__init__.py", "raise RuntimeError('vLLM was imported')\n")
    status, out, complaints = run(tree, "check")
    assert (status, complaints) == (0, "")
    assert f"{KNOWN}, in {tree.package}" in " ".join(out.split())
    assert "install() would work, if vLLM can be imported" in out
    assert "vllm.executor: Handle, MessageQueue" in out
    assert all(name in out for name in (_survey.MODULE, "memory_fence", "check_shm_free_space", "spinloop"))


def test_check_says_why_not(tree: Tree) -> None:
    tree.describe("0.34.0")
    status, out, complaints = run(tree, "check")
    assert (status, complaints) == (1, "")
    assert "install() would refuse" in out
    assert "vLLM 0.34.0 is not known" in out


def test_check_without_vllm(tree: Tree) -> None:
    shutil.rmtree(tree.root)
    status, out, complaints = run(tree, "check")
    assert (status, complaints) == (1, "")
    assert "no vLLM is installed" in out


@pytest.mark.parametrize("arguments", [[], ["install"], ["check", "twice"], ["--quick"]])
def test_bad_usage(tree: Tree, arguments: list[str]) -> None:
    status, out, complaints = run(tree, *arguments)
    assert (status, out) == (2, "")
    assert complaints.startswith("usage: python -m aiospin.compat.vllm")


@pytest.mark.parametrize(
    ("redirection", "status", "complaint"),
    [(">&-", 0, ""), ("2>&-", 0, ""), (">/dev/full", 1, "the result could not be written: No space left on device\n")],
)
def test_check_with_a_stream_that_is_closed_or_full(tree: Tree, redirection: str, status: int, complaint: str) -> None:
    done, _, complaints = run(tree, "check", redirection=redirection)
    assert done == status
    assert complaints.endswith(complaint) and bool(complaints) == bool(complaint)


def test_what_a_terminal_could_take_amiss_is_escaped(
    tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    odd = Tree(tmp_path / "red\x1b[31m\udcff")
    monkeypatch.syspath_prepend(str(odd.root))
    assert command.main(["check"]) == 0
    out = capsys.readouterr().out
    assert r"red\x1b[31m\udcff" in out and "\x1b" not in out


def test_ctrl_c_ends_check_with_a_word(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "survey", interrupted)
    assert command.main(["check"]) == 130
    assert capsys.readouterr().err == "python -m aiospin.compat.vllm: interrupted\n"
