"""The litmus tests are about the sources: each statement that names an operation of native/ has its kind and its order.

So whoever changes a memory order, or replaces an exchange by a store, has to change a litmus test with it, and the
litmus test says what that breaks. The same holds of two operations that change places.
"""

from __future__ import annotations

from pathlib import Path

import litmus
import pytest
import seats
from litmus import Branch, Litmus, Statement

FOLDER = Path(__file__).resolve().parent / "litmus"
TESTS = {path.stem: litmus.read(path) for path in sorted(FOLDER.glob("*.litmus"))}
OPERATIONS = seats.operations()

# Operations with an order that no litmus test is about, and why.
ALONE = {
    "native/queue/reader.cpp Reader released.observe": "the role's lock has ordered it behind its predecessor",
    "native/queue/reader.cpp refresh released.observe": "the role's lock has ordered it behind its predecessor",
    "native/queue/reader.cpp refresh released.advance": "no bell: slowest() takes the later of this and `start` anyway",
    "native/queue/writer.cpp ring_all epoch.heard": "rings whatever it hears",
}


def seated(test: Litmus) -> list[Statement]:
    return [statement for statement in test.statements() if statement.seat]


@pytest.mark.parametrize("name", TESTS)
def test_each_statement_is_what_the_sources_say(name: str) -> None:
    assert seated(TESTS[name])
    for statement in seated(TESTS[name]):
        assert statement.seat in OPERATIONS, f"{name}, line {statement.line}: no longer in the sources"
        operation = OPERATIONS[statement.seat]
        assert (statement.kind, statement.order) == (operation.kind, operation.order), (
            f"{name}, line {statement.line}: {operation.name} (line {operation.line}) has another kind or order"
        )


@pytest.mark.parametrize("name", TESTS)
def test_statements_of_one_function_stand_in_its_order(name: str) -> None:
    for thread in TESTS[name].threads:
        by_function: dict[str, list[int]] = {}
        for statement in litmus.flat(thread):
            if statement.seat:
                operation = OPERATIONS[statement.seat]
                by_function.setdefault(operation.function, []).append(operation.line)
        for function, lines in by_function.items():
            assert lines == sorted(set(lines)), function


def test_every_order_is_the_matter_of_some_litmus_test() -> None:
    used = {statement.seat for test in TESTS.values() for statement in seated(test)}
    ordered = {
        o.name for o in OPERATIONS.values() if o.order != "relaxed" and o.function.split()[0] not in seats.CALLEES
    }
    assert ordered - used == set(ALONE)


def test_the_scan_sees_a_change_of_order_of_kind_and_of_place() -> None:
    text = """
void Writer::flush() noexcept {
  // sync:journal release: first.
  entry.cursor.store(1,
                     std::memory_order_release);
  entry.cursor.store(2, std::memory_order_relaxed);
  segment(rank).gate(f(x)).exchange(3, std::memory_order_acq_rel);
  name.store("no atomic");
}
"""
    found = [(o.name, o.kind, o.order, o.line) for o in seats.atomics("f.cpp", text)]
    assert found == [
        ("f.cpp flush cursor.store", "store", "release", 4),
        ("f.cpp flush cursor.store 2", "store", "relaxed", 6),
        ("f.cpp flush gate.exchange", "exchange", "acq_rel", 7),
    ]


def test_the_five_operations_are_found_where_they_are_called() -> None:
    callee = seats.Operation("", "exchange", "seq_cst", "", 0)
    text = """
void f() {
  shm::cursor::advance(lines_.released.cursor, next);
  g(shm::doorbell::heard(a(rank).park.epoch), 1);
}
"""
    found = [o.name for o in seats.calls("f.cpp", text, {"advance": callee, "heard": callee})]
    assert found == ["f.cpp f released.advance", "f.cpp f epoch.heard"]


def test_branches_are_looked_into() -> None:
    assert any(isinstance(step, Branch) for step in TESTS["join"].threads[1])
    assert "native/queue/writer.cpp listen gate.store" in {s.seat for s in seated(TESTS["join"])}
