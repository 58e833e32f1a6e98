"""The protocols' memory orders, under the language's model, AArch64's and x86-TSO: each is enough, and each is needed.

The models themselves are tested on classic litmus tests whose verdicts are published.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import litmus
import pytest
from litmus import Litmus
from memory_models import MODELS, judge

FOLDER = Path(__file__).resolve().parent / "litmus"
CLASSIC = sorted((FOLDER / "classic").glob("*.litmus"))
PROTOCOL = {path.stem: litmus.read(path) for path in sorted(FOLDER.glob("*.litmus"))}
EXPECTED = re.compile(r"(RC11|AArch64|x86-TSO)( with dependencies)? (allowed|forbidden)")

# Operations whose order no test here needs, and why they have it all the same.
BELT = {
    "native/queue/reader.cpp Reader stay.store": "the announcement that follows releases it too",
    "native/queue/writer.cpp listen stay.load": "ordered by the epoch that was heard before it; ring_all hears none",
    "native/queue/writer.cpp drop stay.load": "its value is all that matters",
}


@pytest.mark.parametrize("path", CLASSIC, ids=lambda path: path.stem)
def test_each_model_agrees_with_what_is_published(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    expected = EXPECTED.findall(text)
    assert [model for model, _, _ in expected] == list(MODELS)
    for model, dependencies, verdict in expected:
        found = judge(litmus.parse(text), model, bool(dependencies))
        assert found.executions and not found.racy
        assert ("allowed" if found.reached else "forbidden") == verdict, model


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("name", PROTOCOL)
def test_the_protocol_holds(name: str, model: str) -> None:
    found = judge(PROTOCOL[name], model)
    assert found.executions and found.holds(PROTOCOL[name])


def seated() -> dict[str, list[tuple[Litmus, int]]]:
    """Where each operation of the sources with an order stands: in which tests, on which lines."""
    found: dict[str, list[tuple[Litmus, int]]] = {}
    for test in PROTOCOL.values():
        for statement in test.statements():
            if statement.seat and statement.order != "relaxed":
                found.setdefault(statement.seat, []).append((test, statement.line))
    return found


@pytest.mark.parametrize("seat", seated())
def test_each_order_is_needed(seat: str) -> None:
    """Relaxed, the operation breaks a test in the language and on AArch64. (x86 has no relaxed loads and exchanges.)"""
    places = seated()[seat]
    for model in ("RC11", "AArch64"):
        rejected = [
            test.name for test, line in places if not judge(weak := test.with_order(line, "relaxed"), model).holds(weak)
        ]
        assert bool(rejected) != (seat in BELT), model


# (test, thread): the exchange or addition there is a full barrier, which a store is not, on x86 neither.
BARRIERS = [
    ("doorbell", 0),
    ("doorbell", 1),
    ("room", 0),
    ("room", 1),
    ("room_of_two", 0),
    ("room_of_two", 1),
    ("completion", 1),
]


@pytest.mark.parametrize(("name", "thread"), BARRIERS)
def test_a_store_in_place_of_an_exchange_or_an_addition_breaks_it_on_x86_too(name: str, thread: int) -> None:
    test = PROTOCOL[name]
    line = next(s.line for s in litmus.flat(test.threads[thread]) if s.kind in ("exchange", "add"))
    broken = with_store(test, line)
    for model in ("RC11", "x86-TSO"):  # on AArch64 STLR, LDAR would do
        assert not judge(broken, model).holds(broken), model


def with_store(test: Litmus, line: int) -> Litmus:
    """The same test with a release store on one line; for statements outside branches."""
    changed = tuple(
        tuple(
            replace(step, kind="store", order="release", register="")
            if isinstance(step, litmus.Statement) and step.line == line
            else step
            for step in thread
        )
        for thread in test.threads
    )
    return replace(test, threads=changed)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("C t\n{ x = 0; }\nP0(atomic_int* x) {\n  x++;\n}\nexists (x=1)\n", "line 4"),
        ("C t\n{ x = 0; }\nP0(atomic_int* x) {\n}\nforall (x=1)\n", "line 5"),
        ("C t\n{ x = 0; }\nP0(atomic_int* x) {\n}\nexists (x=1 || x=2)\n", "condition"),
        ("X86 t\n{ x = 0; }\nexists (x=1)\n", "line 1"),
    ],
)
def test_what_is_not_understood_is_refused(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        litmus.parse(text)


def test_a_plain_access_that_races_counts_as_any_outcome() -> None:
    test = PROTOCOL["publish"]
    line = next(s.line for s in test.statements() if s.kind == "load" and s.order == "acquire")
    assert judge(test.with_order(line, "relaxed"), "RC11").racy
    assert not judge(test, "RC11").racy
