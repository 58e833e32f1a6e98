"""The atomic operations of the native sources, each found by file, function and the word that it is about.

So a litmus test can say which operation of the sources a statement of it stands for, and a mutant of the sources which
operation it changes, without a line number that every edit moves. The five operations that the protocols are made of
(advance, observe, look_again in shm/cursor.h; announce, heard in shm/doorbell.h) are found where they are called.

Guarantee: every atomic operation under native/ is found, whatever its order, and every such call.
Assumption: functions begin in column 0, or two to the right inside a class, as everywhere here; no atomic operation is
spelled as an operator; what is called does one atomic operation.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent

_ATOMIC = re.compile(
    r"(?P<word>\w+)(?:\([^()]*(?:\([^()]*\)[^()]*)*\))?(?:\.|->)"
    r"(?P<verb>load|store|exchange|fetch_add|fetch_sub|compare_exchange_\w+)\("
)
_CALL = re.compile(
    r"\b(?:cursor|doorbell)::(?P<verb>advance|observe|look_again|announce|heard)\((?P<word>[^;]*?)(?:, |\)[;,) ])"
)
_ORDER = re.compile(r"memory_order_(\w+)")
_FUNCTION = re.compile(
    r"(?:  )?(?=\S)(?!if\b|for\b|while\b|switch\b|return\b|else\b|do\b)[\w:<>,&*~ ]*?(?P<name>~?\w+)\([^;]*$"
)

# Where the five are, whose own operations litmus tests name at their calls.
CALLEES = ("native/shm/cursor.h", "native/shm/doorbell.h")

# What an operation of the sources is called in litmus tests. A successful compare_exchange is an exchange.
KINDS: Mapping[str, str] = {
    "load": "load",
    "store": "store",
    "exchange": "exchange",
    "fetch_add": "add",
    "fetch_sub": "add",
    "compare_exchange_strong": "exchange",
}


@dataclass(frozen=True)
class Operation:
    """One atomic operation of the sources, or a call that makes one."""

    name: str  # FILE FUNCTION WORD.VERB, and a number if it is not the first of that name
    kind: str  # one of KINDS' values
    order: str
    function: str  # FILE FUNCTION
    line: int


def operations(changed: Mapping[str, str] | None = None) -> dict[str, Operation]:
    """Every atomic operation under native/, by name; `changed` holds texts to read in place of some files."""
    texts = {
        path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted(ROOT.glob("native/**/*"))
        if path.suffix in (".h", ".cpp")
    }
    texts.update(changed or {})
    found = [operation for file, text in texts.items() for operation in atomics(file, text)]
    called = tuple((o.function.split()[1], o) for o in found if o.function.split()[0] in CALLEES)
    found += [operation for file, text in texts.items() for operation in calls(file, text, called)]
    by_name = {operation.name: operation for operation in found}
    assert len(by_name) == len(found), "two operations have one name"
    return by_name


@functools.cache
def atomics(file: str, text: str) -> tuple[Operation, ...]:
    """Every atomic operation of one file, in the order of the text."""
    code = _without_comments(text)
    found: list[Operation] = []
    for match in _ATOMIC.finditer(code):
        order = _ORDER.search(code, match.end(), code.find(";", match.end()))
        if order is None:
            continue  # not an atomic; test_sync_tags.py sees to it that no atomic leaves its order out
        found.append(_named(found, file, code, match, match["word"], KINDS[match["verb"]], order[1]))
    return tuple(found)


@functools.cache
def calls(file: str, text: str, called: tuple[tuple[str, Operation], ...]) -> tuple[Operation, ...]:
    """Every call in one file of a function that makes one atomic operation: `called` has those."""
    by_name = dict(called)
    code = _without_comments(text)
    found: list[Operation] = []
    for match in _CALL.finditer(code):
        names = re.findall(r"\w+", match["word"])
        word = names[-2] if names[-1] == "cursor" and len(names) > 1 else names[-1]
        callee = by_name[match["verb"]]
        found.append(_named(found, file, code, match, word, callee.kind, callee.order))
    return tuple(found)


def _without_comments(text: str) -> str:
    return re.sub(r"//[^\n]*", lambda comment: " " * len(comment[0]), text)


def _named(
    before: list[Operation], file: str, code: str, match: re.Match[str], word: str, kind: str, order: str
) -> Operation:
    function = f"{file} {_enclosing(code, match.start())}"
    name = f"{function} {word}.{match['verb']}"
    alike = sum(re.sub(r" \d+$", "", operation.name) == name for operation in before)
    line = code.count("\n", 0, match.start()) + 1
    return Operation(f"{name} {alike + 1}" if alike else name, kind, order, function, line)


def _enclosing(code: str, place: int) -> str:
    """The name of the function that `place` is in."""
    for line in reversed(code[: code.find("\n", place)].splitlines()):
        head = _FUNCTION.match(line.rstrip())
        if head is not None:
            return head["name"]
    raise ValueError("no function begins before it")
