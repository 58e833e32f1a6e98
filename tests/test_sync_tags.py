"""Every atomic says why its order is right: `sync:<name> <order>` names its pair, `relaxed:` says why that is enough.

A tag stands in a comment on the line of the operation or right above its statement. The other side of a pair may be
Python, which stores and loads words of the segment too; there the tag stands in a comment of the same form.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
NATIVE = ROOT / "native"

ATOMIC = re.compile(r"(?:\.|->)(load|store|exchange|fetch_\w+|compare_exchange_\w+)\(")
ORDER = re.compile(r"memory_order(?:_|::)(\w+)")
TAG = re.compile(r"sync:([\w-]+)(?: (seq_cst|acq_rel|acquire|release))?")
READS = re.compile(r"(?:\.|->)(load|add|exchange|fetch_\w+|compare_exchange_\w+)\(")
WRITES = re.compile(r"(?:\.|->)(store|add|exchange|fetch_\w+|compare_exchange_\w+)\(")

LOOK_BACK = 4  # lines from an operation to the comment above its statement


def native_files() -> list[Path]:
    return sorted(path for path in NATIVE.rglob("*") if path.suffix in {".h", ".cpp"})


def code(line: str) -> str:
    """Return a line without its comment."""
    return line.split("//")[0]


def comment(line: str) -> str:
    return line.partition("//")[2]


def statement(lines: list[str], number: int) -> str:
    """Return the code from line `number` to the end of its statement."""
    text = ""
    for line in lines[number : number + LOOK_BACK]:
        text += code(line) + "\n"
        if ";" in code(line) or code(line).rstrip().endswith("{"):
            break
    return text


def remarks(lines: list[str], number: int) -> str:
    """Return the comments that belong to the operation on line `number`: its own and those right above."""
    found = [comment(lines[number])]
    for line in reversed(lines[max(0, number - LOOK_BACK) : number]):
        if not line.strip():
            break
        found.append(comment(line))
    return "\n".join(found)


@pytest.mark.parametrize("path", native_files(), ids=lambda path: str(path.relative_to(NATIVE)))
def test_every_atomic_names_its_order_and_reason(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    bare = []
    for number, line in enumerate(lines):
        for found in ATOMIC.finditer(code(line)):
            if not ORDER.search(statement(lines, number)[found.start() :]):
                bare.append(f"{number + 1}: `{found[1]}` leaves its memory order to the default")
        for order in ORDER.findall(code(line)):
            said = remarks(lines, number)
            if order == "relaxed":
                if "relaxed:" not in said:
                    bare.append(f"{number + 1}: no `relaxed:` reason")
            elif order not in [tagged for _, tagged in TAG.findall(said)]:
                bare.append(f"{number + 1}: no `sync:<name> {order}`")
    assert not bare, f"{path.relative_to(ROOT)}\n" + "\n".join(bare)


class Side(NamedTuple):
    """One tagged operation."""

    place: str
    operation: str


def sides() -> Iterator[tuple[str, Side]]:
    for path in native_files():
        lines = path.read_text(encoding="utf-8").splitlines()
        for number, line in enumerate(lines):
            for name, _ in TAG.findall(comment(line)):
                here = number
                while not code(lines[here]).strip():
                    here += 1
                yield name, Side(f"{path.relative_to(ROOT)}:{number + 1}", statement(lines, here))
    for path in sorted((ROOT / "aiospin").rglob("*.py")):
        lines = path.read_text(encoding="utf-8").splitlines()
        for number, line in enumerate(lines):
            for name, _ in TAG.findall(line.partition("#")[2]):
                yield (
                    name,
                    Side(f"{path.relative_to(ROOT)}:{number + 1}", "\n".join(lines[number : number + LOOK_BACK])),
                )


def test_every_tag_has_both_sides() -> None:
    tagged: dict[str, list[Side]] = defaultdict(list)
    for name, side in sides():
        tagged[name].append(side)
    assert tagged
    wrong = []
    for name, both in sorted(tagged.items()):
        places = ", ".join(side.place for side in both)
        if len(both) < 2:
            wrong.append(f"sync:{name} stands alone at {places}")
        elif not any(WRITES.search(side.operation) for side in both):
            wrong.append(f"sync:{name} has no storing side: {places}")
        elif not any(READS.search(side.operation) for side in both):
            wrong.append(f"sync:{name} has no loading side: {places}")
    assert not wrong, "\n".join(wrong)
