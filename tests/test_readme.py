"""README's code: the program runs and prints what its messages were, and every snippet uses names that exist."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import aiospin

README = Path(__file__).resolve().parent.parent / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)

# What README's variables are.
KINDS: dict[str, tuple[type, ...]] = {
    "queue": (aiospin.Queue, aiospin.QueueReader),
    "reader": (aiospin.QueueReader,),
    "writer": (aiospin.QueueWriter,),
    "slot": (aiospin.ReadSlot, aiospin.WriteSlot),
}


def test_the_program_runs(tmp_path: Path) -> None:
    (program,) = [block for block in BLOCKS if "__main__" in block]
    path = tmp_path / "program.py"
    path.write_text(program, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "error", path],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        # Two processes print to one pipe. Unbuffered, a line would be written in two pieces, which can interleave.
        env={name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"},
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(done.stdout.split()) == ["b'hello'", "b'hello'", "b'world'", "b'world'"]


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_a_snippet_uses_names_that_exist(number: int) -> None:
    tree = compile(BLOCKS[number], "README.md", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            name = node.value.id
            if name == "aiospin":
                assert hasattr(aiospin, node.attr)
            elif name in KINDS:
                assert any(hasattr(kind, node.attr) for kind in KINDS[name]), f"{name}.{node.attr}"
