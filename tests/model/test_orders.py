"""The litmus tests are about the sources: each statement that names an operation of native/ has its kind and its order.

So whoever changes a memory order, or replaces an exchange by a store, has to change a litmus test with it, and the
litmus test says what that breaks. The same holds of two operations that change places.
"""

from __future__ import annotations

import agreement
import litmus
import pytest
import seats
from litmus import Branch

TESTS = {test.name: test for test in agreement.tests()}


def test_sources_and_litmus_tests_agree() -> None:
    assert not agreement.complaints()


@pytest.mark.parametrize("name", TESTS)
def test_each_litmus_test_is_about_the_sources(name: str) -> None:
    assert any(statement.seat for statement in TESTS[name].statements())


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
    found = [o.name for o in seats.calls("f.cpp", text, (("advance", callee), ("heard", callee)))]
    assert found == ["f.cpp f released.advance", "f.cpp f epoch.heard"]


def test_branches_are_looked_into() -> None:
    assert any(isinstance(step, Branch) for step in TESTS["join"].threads[1])
    assert "native/queue/writer.cpp listen gate.store" in {s.seat for s in litmus.flat(TESTS["join"].threads[1])}
