"""Whether the litmus tests are about the sources: what each statement says of an operation, and what the sources say.

Guarantee: a changed order or kind, an operation that is gone, and two of one function that changed places are all told.
Assumption: litmus tests name every operation that has an order (complaints says so where one does not).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import litmus
import seats

FOLDER = Path(__file__).resolve().parent / "litmus"

# Operations with an order that no litmus test is about, and why.
ALONE = {
    "native/queue/reader.cpp Reader released.observe": "the role's lock has ordered it behind its predecessor",
    "native/queue/reader.cpp refresh released.observe": "the role's lock has ordered it behind its predecessor",
    "native/queue/reader.cpp refresh released.advance": "no bell: slowest() takes the later of this and `start` anyway",
    "native/queue/writer.cpp ring_all epoch.heard": "rings whatever it hears",
}


def tests() -> list[litmus.Litmus]:
    """The protocols' litmus tests."""
    return [litmus.read(path) for path in sorted(FOLDER.glob("*.litmus"))]


def complaints(changed: Mapping[str, str] | None = None) -> list[str]:
    """Where the litmus tests and the sources disagree; `changed` holds texts in place of some files of the latter."""
    operations = seats.operations(changed)
    found: list[str] = []
    used: set[str] = set()
    for test in tests():
        for thread in test.threads:
            lines: dict[str, int] = {}
            for statement in litmus.flat(thread):
                if not statement.seat:
                    continue
                used.add(statement.seat)
                where = f"{test.name}.litmus, line {statement.line}"
                operation = operations.get(statement.seat)
                if operation is None:
                    found.append(f"{where}: `{statement.seat}` is not in the sources")
                    continue
                here, there = (statement.kind, statement.order), (operation.kind, operation.order)
                if here != there:
                    found.append(f"{where}: {here}, but {there} at line {operation.line} of {operation.function}")
                if operation.line <= lines.get(operation.function, 0):
                    found.append(f"{where}: comes before its predecessor in {operation.function}")
                lines[operation.function] = operation.line
    ordered = {
        o.name for o in operations.values() if o.order != "relaxed" and o.function.split()[0] not in seats.CALLEES
    }
    found += [f"`{name}` has an order that no litmus test is about" for name in sorted(ordered - used - set(ALONE))]
    found += [f"`{name}` need not be excepted" for name in ALONE if name not in ordered or name in used]
    return found
