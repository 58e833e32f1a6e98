"""A plugin for pytest: leaves out the tests that user-mode emulation cannot run, and says how many.

Guarantee: only those that start a process of their own program. QEMU makes up the start time in /proc/self/stat, a
little later than the kernel's, which others read: a child takes the owner of a segment for gone.
"""

from __future__ import annotations

import inspect
import re

import pytest

STARTS = re.compile(r"\bProgram\(")  # of tests/programs.py


def starts_a_process(item: pytest.Item) -> bool:
    """Return whether the test's own text, or that of a function of its file that it calls, starts a program."""
    function = getattr(item, "function", None)
    if function is None:
        return False
    texts = [inspect.getsource(function)]
    beside = vars(inspect.getmodule(function))
    for name in inspect.unwrap(function).__code__.co_names:
        other = beside.get(name)
        if inspect.isfunction(other):
            texts.append(inspect.getsource(other))
    return any(STARTS.search(text) for text in texts)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = [item for item in items if starts_a_process(item)]
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=left_out)
