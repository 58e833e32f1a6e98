"""install() and uninstall() on a vLLM that has modules before, meanwhile and after; and when it is refused."""

from __future__ import annotations

import importlib
import os
import pickle
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from vllm_tree import KNOWN, QUEUE, Tree, forget, tree

from aiospin._errors import AiospinError
from aiospin.compat.vllm import _install, _spin, _survey
from aiospin.compat.vllm._install import (
    SWITCH,
    InstallRefused,
    UnknownVersion,
    VllmNotFound,
    install,
    plugin,
    uninstall,
)

__all__ = ["tree"]

OURS = _survey.replacements()
FOR_RAY = "VLLM_RAY_EXTRA_ENV_VARS_TO_COPY"


def names(module: ModuleType) -> dict[str, Any]:
    return {name: getattr(module, name, None) for name in OURS}


def test_every_name_is_replaced_and_given_back(tree: Tree) -> None:
    before = names(tree.broadcast)
    executor = tree.module("executor")
    arena = tree.module("distributed.arena")
    install()
    assert names(tree.broadcast) == OURS
    assert executor.Queue is OURS["MessageQueue"] and executor.Handle is OURS["Handle"]
    assert executor.RingOfTheirs is tree.broadcast.RingOfTheirs
    assert arena.memory_fence is OURS["memory_fence"]
    assert arena.check_shm_free_space is OURS["check_shm_free_space"]
    late = tree.module("late")
    assert late.MessageQueue is OURS["MessageQueue"]
    uninstall()
    assert names(tree.broadcast) == before
    assert executor.Queue is before["MessageQueue"] and executor.Handle is before["Handle"]
    assert late.MessageQueue is before["MessageQueue"]
    assert arena.memory_fence is before["memory_fence"]


def test_it_imports_their_module_if_nobody_has(tree: Tree) -> None:
    install()
    assert names(sys.modules[_survey.MODULE]) == OURS
    assert tree.module("executor").Queue is OURS["MessageQueue"]


def test_twice_is_once(tree: Tree) -> None:
    before = names(tree.broadcast)
    install()
    environment = dict(os.environ)
    install()
    assert dict(os.environ) == environment
    uninstall()
    assert names(tree.broadcast) == before
    uninstall()
    assert names(tree.broadcast) == before
    install()
    assert names(tree.broadcast) == OURS


def test_a_module_that_was_reloaded_is_patched_again(tree: Tree) -> None:
    install()
    importlib.reload(tree.broadcast)
    late = tree.module("late")
    assert late.MessageQueue is not OURS["MessageQueue"]
    install()
    assert names(tree.broadcast) == OURS and late.MessageQueue is OURS["MessageQueue"]
    uninstall()
    assert late.MessageQueue is tree.broadcast.MessageQueue is not OURS["MessageQueue"]


def test_the_extension_is_replaced_where_it_is_loaded(tree: Tree) -> None:
    spinning = tree.module("spinloop")
    theirs = spinning.spinloop
    tree.broadcast.spin = theirs
    install()
    assert spinning.spinloop is tree.broadcast.spin is _spin.spinloop
    uninstall()
    assert spinning.spinloop is tree.broadcast.spin is theirs


def test_only_modules_of_vllm_are_touched(tree: Tree) -> None:
    (tree.root / "elsewhere.py").write_text(f"from {_survey.MODULE} import MessageQueue\n")
    (tree.root / "vllm_elsewhere.py").write_text(f"from {_survey.MODULE} import MessageQueue\n")
    theirs = tree.broadcast.MessageQueue
    elsewhere, extension = importlib.import_module("elsewhere"), importlib.import_module("vllm_elsewhere")
    del sys.modules["elsewhere"]
    sys.modules["vllm_elsewhere.none"] = None  # type: ignore[assignment]  # how an import is forbidden
    install()
    assert elsewhere.MessageQueue is theirs
    assert extension.MessageQueue is OURS["MessageQueue"]


# processes that will be started


@pytest.mark.parametrize(
    ("before", "meanwhile"),
    [(None, SWITCH), ("", SWITCH), ("A, B", f"A, B,{SWITCH}"), (f"A, {SWITCH}", f"A, {SWITCH}")],
)
def test_children_are_asked_through_the_environment(
    tree: Tree, monkeypatch: pytest.MonkeyPatch, before: str | None, meanwhile: str
) -> None:
    with monkeypatch.context() as patch:
        if before is not None:
            patch.setenv(FOR_RAY, before)
        install()
        assert (os.environ[SWITCH], os.environ[FOR_RAY]) == ("1", meanwhile)
        uninstall()
        assert (os.environ.get(SWITCH), os.environ.get(FOR_RAY)) == (None, before)


CHILD = """\
import sys
from importlib.metadata import entry_points
(point,) = {point.value: point for point in entry_points(group="vllm.general_plugins", name="aiospin")}.values()
point.load()()
print("vllm" in sys.modules)
import vllm.executor
print(vllm.executor.Queue.__module__)
"""


@pytest.mark.parametrize(
    ("switch", "imported", "origin"),
    [
        ("1", "True", "aiospin.compat.vllm._queue"),
        ("on", "True", "aiospin.compat.vllm._queue"),
        ("0", "False", _survey.MODULE),
        (None, "False", _survey.MODULE),
    ],
)
def test_a_process_that_vllm_starts_takes_part_if_it_is_asked(
    tree: Tree, switch: str | None, imported: str, origin: str
) -> None:
    environment = tree.environment
    if switch is not None:
        environment[SWITCH] = switch
    child = [sys.executable, "-W", "error", "-c", CHILD]
    done = subprocess.run(child, capture_output=True, text=True, check=False, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == [imported, origin]


def test_the_plugin_refuses_as_loudly_as_install(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    tree.describe("0.34.0")
    plugin()
    with monkeypatch.context() as patch:
        patch.setenv(SWITCH, "1")
        with pytest.raises(UnknownVersion):
            plugin()
        patch.setenv(SWITCH, "perhaps")
        with pytest.raises(ValueError, match="AIOSPIN_VLLM='perhaps'"):
            plugin()


# refused


def assert_untouched(tree: Tree, kind: type[AiospinError], why: str) -> None:
    environment = dict(os.environ)
    with pytest.raises(kind, match=why) as caught:
        install()
    assert dict(os.environ) == environment
    assert not _install._replaced
    again = pickle.loads(pickle.dumps(caught.value))
    assert (type(again), str(again), again.reasons) == (kind, str(caught.value), caught.value.reasons)


def test_no_vllm(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path != str(tree.root)])
    assert_untouched(tree, VllmNotFound, "^no vLLM is installed$")
    assert issubclass(VllmNotFound, ImportError)


def test_an_unknown_version(tree: Tree) -> None:
    before, executor = names(tree.broadcast), tree.module("executor")
    tree.describe("0.34.0")
    assert_untouched(tree, UnknownVersion, r"vLLM 0\.34\.0 is not known: .*; known are 0\.27\.1, ")
    assert names(tree.broadcast) == before and executor.Queue is before["MessageQueue"]


def test_a_changed_signature(tree: Tree) -> None:
    tree.change("def dequeue(self, timeout=None, indefinite=False)", "def dequeue(self, timeout=None, peek=False)")
    assert_untouched(tree, UnknownVersion, "dequeue takes 'peek', which ours does not")
    assert _survey.MODULE not in sys.modules


def test_workers_that_would_not_take_part(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("VLLM_PLUGINS", "others")
        assert_untouched(tree, InstallRefused, "VLLM_PLUGINS='others' does not name 'aiospin'")


def test_a_name_that_somebody_else_has_replaced(tree: Tree) -> None:
    class MessageQueue:
        pass

    before = names(tree.broadcast)
    tree.broadcast.MessageQueue = MessageQueue
    assert_untouched(tree, InstallRefused, f"^MessageQueue in {_survey.MODULE} is .*{__name__}")
    assert names(tree.broadcast) == {**before, "MessageQueue": MessageQueue}


def test_a_name_that_is_gone_when_it_is_imported(tree: Tree) -> None:
    with open(tree.package / QUEUE, "a", encoding="utf-8") as source:
        source.write("\ndel memory_fence\n")
    assert_untouched(tree, InstallRefused, "^memory_fence in .* is None")


def test_a_package_that_cannot_be_imported(tree: Tree) -> None:
    tree.write("distributed/__init__.py", "import a_library_that_is_missing\n")
    environment = dict(os.environ)
    with pytest.raises(ModuleNotFoundError, match="a_library_that_is_missing"):
        install()
    assert dict(os.environ) == environment and not _install._replaced
    tree.write("distributed/__init__.py", "")
    forget()
    importlib.invalidate_caches()
    install()
    assert names(tree.broadcast) == OURS


def test_a_version_with_a_build_of_its_own_is_the_same(tree: Tree) -> None:
    tree.describe(f"{KNOWN}+cpu")
    install()
    assert names(tree.broadcast) == OURS


def test_uninstall_without_install_changes_nothing(tree: Tree, tmp_path: Path) -> None:
    before = names(tree.broadcast)
    uninstall()
    assert names(tree.broadcast) == before
