"""Litmus tests in the C dialect of herd7, read into programs: one statement a line.

    C name                                         ~exists (...): no execution may end so
    "what it is about"                              exists (...): some execution may
    { x = 0; y = 0; }
    P0(atomic_int* x, int* y) { ... }

Understood: loads, stores, exchanges, fetch_add and fences of <stdatomic.h> with explicit orders, plain `*x`, registers,
`if (r0 == 1) { ... } else { ... }`. Whatever else stands in a file is an error, and never passed over.

A comment `// seat: FILE FUNCTION WORD.OPERATION [N]` ties a statement to the atomic operation of the sources that it
stands for (the Nth of that name in the function); test_orders.py holds the two together.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

Final = Mapping[str, int]  # "0:r1" or "x", and the value there at the end
Condition = Callable[[Final], bool]


@dataclass(frozen=True)
class Statement:
    """One operation. `kind`: load, store, exchange, add, fence or let; a plain access has the order "plain"."""

    kind: str
    order: str = ""
    location: str = ""
    register: str = ""  # where the value read goes; "" for nowhere
    value: int | str = 0  # a constant or a register
    seat: str = ""  # the operation of the sources
    line: int = 0


@dataclass(frozen=True)
class Branch:
    """`if (register == value) then else otherwise`; `equal` is False for `!=`."""

    register: str
    equal: bool
    value: int
    then: Block
    otherwise: Block


Block = tuple["Statement | Branch", ...]


@dataclass(frozen=True)
class Litmus:
    """One test: what each thread does, and what must or may not come out."""

    name: str
    initial: Mapping[str, int]
    threads: tuple[Block, ...]
    forbidden: bool  # ~exists
    condition: Condition

    def statements(self) -> list[Statement]:
        """Every statement, thread by thread, in the order of the text."""
        return [statement for thread in self.threads for statement in flat(thread)]

    def with_order(self, line: int, order: str) -> Litmus:
        """The same test with another memory order on one line."""
        return replace(self, threads=tuple(_with_order(thread, line, order) for thread in self.threads))


def flat(block: Block) -> list[Statement]:
    """Every statement of a block, those in branches too."""
    found = []
    for step in block:
        found += [step] if isinstance(step, Statement) else flat(step.then) + flat(step.otherwise)
    return found


def _with_order(block: Block, line: int, order: str) -> Block:
    return tuple(
        (replace(step, order=order) if step.line == line else step)
        if isinstance(step, Statement)
        else replace(step, then=_with_order(step.then, line, order), otherwise=_with_order(step.otherwise, line, order))
        for step in block
    )


_ORDER = r"memory_order_(?P<order>relaxed|acquire|release|acq_rel|seq_cst)"
_INTO = r"(?:(?:int )?(?P<register>r\d+) = )?"
_VALUE = r"(?P<value>\d+|r\d+)"
_FORMS = [
    ("let", re.compile(rf"(?:int )?(?P<register>r\d+) = {_VALUE};")),
    ("load", re.compile(rf"(?:int )?(?P<register>r\d+) = atomic_load_explicit\((?P<location>\w+), {_ORDER}\);")),
    ("load", re.compile(r"(?:int )?(?P<register>r\d+) = \*(?P<location>\w+);")),
    ("store", re.compile(rf"atomic_store_explicit\((?P<location>\w+), {_VALUE}, {_ORDER}\);")),
    ("store", re.compile(rf"\*(?P<location>\w+) = {_VALUE};")),
    ("exchange", re.compile(rf"{_INTO}atomic_exchange_explicit\((?P<location>\w+), {_VALUE}, {_ORDER}\);")),
    ("add", re.compile(rf"{_INTO}atomic_fetch_add_explicit\((?P<location>\w+), {_VALUE}, {_ORDER}\);")),
    ("fence", re.compile(rf"atomic_thread_fence\({_ORDER}\);")),
]
_IF = re.compile(r"if \((?P<register>r\d+) (?P<how>[=!]=) (?P<value>\d+)\) \{")
_SEAT = re.compile(r"seat: (.+)")


def read(path: Path) -> Litmus:
    """Read one file. ValueError names the line that is not understood."""
    return parse(path.read_text(encoding="utf-8"))


def parse(text: str) -> Litmus:
    """Read a test. ValueError names the line that is not understood."""
    lines = [(number, line.strip()) for number, line in enumerate(text.splitlines(), 1)]
    body = [(n, line.partition("//")[0].strip(), line.partition("//")[2].strip()) for n, line in lines]
    body = [(n, code, remark) for n, code, remark in body if code]
    name = body[0][1].split(maxsplit=1)
    if name[0] != "C" or len(name) != 2:
        raise ValueError(f"line 1: `C name` expected, not {body[0][1]!r}")
    at = 2 if body[1][1].startswith('"') else 1
    initial = {found[1]: int(found[2]) for found in re.finditer(r"(\w+) = (\d+);", body[at][1])}
    threads: list[Block] = []
    at += 1
    while at < len(body) and body[at][1].startswith(f"P{len(threads)}("):
        block, at = _block(body, at + 1)
        threads.append(block)
    final = re.fullmatch(r"(~?)exists (.*)", " ".join(code for _, code, _ in body[at:]))
    if final is None:
        raise ValueError(f"line {body[at][0] if at < len(body) else len(lines)}: `exists (...)` expected")
    return Litmus(name[1], initial, tuple(threads), final[1] == "~", _condition(final[2]))


def _block(body: list[tuple[int, str, str]], at: int) -> tuple[Block, int]:
    """Read up to the closing brace; returns the line after it, or the `} else {` line itself."""
    steps: list[Statement | Branch] = []
    while body[at][1] not in ("}", "} else {"):
        number, code, remark = body[at]
        branch = _IF.fullmatch(code)
        if branch is not None:
            then, at = _block(body, at + 1)
            otherwise: Block = ()
            if body[at - 1][1] == "} else {":
                otherwise, at = _block(body, at)
            steps.append(Branch(branch["register"], branch["how"] == "==", int(branch["value"]), then, otherwise))
            continue
        steps.append(_statement(number, code, remark))
        at += 1
    return tuple(steps), at + 1


def _statement(number: int, code: str, remark: str) -> Statement:
    for kind, form in _FORMS:
        found = form.fullmatch(code)
        if found is not None:
            parts = found.groupdict()
            value = parts.get("value") or "0"
            seat = _SEAT.search(remark)
            return Statement(
                kind,
                parts.get("order") or ("plain" if parts.get("location") else ""),
                parts.get("location") or "",
                parts.get("register") or "",
                int(value) if value.isdigit() else value,
                seat[1] if seat else "",
                number,
            )
    raise ValueError(f"line {number}: {code!r} is not understood")


def _condition(text: str) -> Condition:
    r"""Read `(0:r0=1 /\ (x=2 \/ ~ 1:r0=0))`."""
    tokens = re.findall(r"/\\|\\/|~|\(|\)|[\w:]+=\d+", text)
    if "".join(tokens) != text.replace(" ", ""):
        raise ValueError(f"the condition {text!r} is not understood")

    def either() -> Condition:
        parts = [both()]
        while tokens and tokens[0] == "\\/":
            del tokens[0]
            parts.append(both())
        return lambda final: any(part(final) for part in parts)

    def both() -> Condition:
        parts = [one()]
        while tokens and tokens[0] == "/\\":
            del tokens[0]
            parts.append(one())
        return lambda final: all(part(final) for part in parts)

    def one() -> Condition:
        token = tokens.pop(0)
        if token == "~":
            inner = one()
            return lambda final: not inner(final)
        if token == "(":
            inner = either()
            if tokens.pop(0) != ")":
                raise ValueError(f"the condition {text!r} lacks a parenthesis")
            return inner
        name, _, value = token.partition("=")
        return lambda final: final[name] == int(value)

    condition = either()
    if tokens:
        raise ValueError(f"the condition {text!r} goes on with {tokens}")
    return condition
