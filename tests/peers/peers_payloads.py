"""Objects that must arrive as they were sent, and how to see that they did.

Guarantee: `objects` and `tensors` give the same contents in every process; `difference` looks at bits and not at
equality, so that a NaN equals itself.
Assumption: numpy and torch are there.
"""

from __future__ import annotations

import collections
import datetime
import decimal
import enum
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
import torch

MIB = 1 << 20


class Kind(enum.Enum):
    """An enumeration."""

    PREFILL = "prefill"
    DECODE = "decode"


@dataclass
class Step:
    """What a scheduler would send: plain values, containers, an array and another one of its kind."""

    number: int
    kind: Kind
    tokens: dict[str, list[int]] = field(default_factory=dict)
    mask: Any = None
    before: Step | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """Frozen, and without a dictionary."""

    row: int
    column: int


class BrokenStep(RuntimeError):
    """An exception with arguments of its own."""

    def __init__(self, number: int, reason: str) -> None:
        super().__init__(number, reason)
        self.number = number


def objects() -> Iterator[tuple[str, Any]]:
    """Yield names and objects."""
    yield "None", None
    yield "numbers", (0, -1, 1 << 200, 1.5, float("inf"), 2j, True)
    yield "texts", ["", "\N{SNOWMAN}" * 1000, b"", b"\0" * 70, bytearray(b"changes")]
    yield "nested", {"a": {"b": [{"c": ({"d": set()},)}]}, 1: frozenset({(1, 2), "x"}), None: {1.5: []}}
    yield "large bytes", bytes(range(256)) * (3 * MIB // 256)
    yield "large bytearray", bytearray(b"0123456789abcdef") * (2 * MIB // 16)
    yield "wide", [{"id": number, "text": str(number)} for number in range(20_000)]
    yield "dataclasses", Step(7, Kind.DECODE, {"r1": [1, 2]}, b"mask", Step(6, Kind.PREFILL))
    yield "frozen", {Place(1, 2): Place(3, 4)}
    yield "exception", BrokenStep(3, "no such block")
    yield (
        "standard library",
        [
            datetime.datetime(2024, 2, 29, tzinfo=datetime.timezone.utc),
            decimal.Decimal("1.10"),
            Fraction(1, 3),
            collections.OrderedDict(b=1, a=2),
            collections.deque([1, 2], maxlen=2),
            collections.Counter("abca"),
            re.compile("a+b", re.IGNORECASE),
            range(3, 30, 3),
            slice(1, None, 2),
        ],
    )
    yield "by name", [Step, len, Kind.PREFILL, re.sub]
    for kind in ("?", "i1", "<u2", ">i4", "<f2", "<f8", "<c16", "<M8[ns]", "S7", "U5"):
        yield f"array of {kind}", np.arange(12).astype(kind).reshape(3, 4)
    yield "array of records", np.array([(1, 2.5), (3, float("nan"))], dtype=[("id", "<i4"), ("weight", "<f8")])
    yield "array of objects", np.array([None, "x", {"y": 1}], dtype=object)
    yield "array without dimensions", np.array(5.5)
    yield "array without elements", np.zeros((0, 3), np.float32)
    yield "array in columns", np.asfortranarray(np.arange(12.0).reshape(3, 4))
    yield "every second of an array", np.arange(20)[::2]
    yield "large array", np.arange(MIB, dtype=np.int64).reshape(1024, 1024)
    yield "large arrays in columns", [np.asfortranarray(np.arange(MIB, dtype=np.int32).reshape(512, 2048))] * 2


def difference(sent: Any, got: Any) -> str:
    """Return what is different about `got`, or ""."""
    if type(sent) is not type(got):
        return f"{type(sent).__name__} became {type(got).__name__}"
    if isinstance(sent, np.ndarray):
        if (sent.dtype, sent.shape) != (got.dtype, got.shape):
            return f"{sent.dtype} {sent.shape} became {got.dtype} {got.shape}"
        if not got.flags.writeable:
            return "it cannot be written"
        same = sent.tolist() == got.tolist() if sent.dtype == object else sent.tobytes() == got.tobytes()
        return "" if same else "its elements changed"
    if isinstance(sent, list) and any(isinstance(item, np.ndarray) for item in sent):
        return "; ".join(filter(None, map(difference, sent, got)))
    if isinstance(sent, BaseException):
        return "" if (sent.args, vars(sent)) == (got.args, vars(got)) else f"{sent!r} became {got!r}"
    return "" if sent == got else f"{repr(sent)[:60]} became {repr(got)[:60]}"


# --- tensors


def _filled(kind: torch.dtype, count: int) -> torch.Tensor:
    """Return `count` elements of every bit pattern there is, in turn. Raises what torch raises if it has no such."""
    width = torch.empty(0, dtype=kind).element_size()
    raw = (torch.arange(count * width, dtype=torch.int64) * 37 + 11).to(torch.uint8)
    return (raw & 1).bool() if kind == torch.bool else raw.view(kind)


def kinds() -> list[torch.dtype]:
    """Return every dtype that this torch has, but for two of which it cannot make a tensor that it can copy."""
    found = {str(value): value for value in vars(torch).values() if isinstance(value, torch.dtype)}
    return [found[name] for name in sorted(found) if name not in ("torch.quint2x4", "torch.quint4x2")]


def _quantized(kind: torch.dtype) -> torch.Tensor | None:
    if str(kind) not in ("torch.qint8", "torch.quint8", "torch.qint32"):
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they are deprecated, and there
        return torch.quantize_per_tensor(torch.arange(15.0).reshape(3, 5), 0.5, 3, kind)


def tensors(kind: torch.dtype) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield names and tensors of one dtype."""
    name = str(kind).removeprefix("torch.")
    quantized = _quantized(kind)
    if quantized is not None:
        yield f"{name}", quantized
        return
    yield f"{name}", _filled(kind, 15).reshape(3, 5)
    yield f"{name} without dimensions", _filled(kind, 1).reshape(())
    yield f"{name} without elements", _filled(kind, 0).reshape(0, 4)
    yield f"{name} of no rows", _filled(kind, 0).reshape(4, 0)
    yield f"{name} transposed", _filled(kind, 15).reshape(3, 5).t()
    yield f"{name} every second", _filled(kind, 20)[1::2]
    yield f"{name} part of a larger one", _filled(kind, 100)[10:25]
    yield f"{name} expanded", _filled(kind, 1).expand(4)
    yield f"{name} of 2 MiB", _filled(kind, 2 * MIB // torch.empty(0, dtype=kind).element_size())


def other_tensors() -> Iterator[tuple[str, torch.Tensor]]:
    """Yield tensors that are more than their elements."""
    yield "requires_grad", torch.arange(6.0, requires_grad=True)
    yield "large requires_grad", torch.arange(float(MIB), requires_grad=True)
    yield "Parameter", torch.nn.Parameter(torch.arange(6.0))
    yield "conjugated", torch.tensor([1 + 2j, 3 - 4j]).conj()
    yield "negated imaginary part", torch.tensor([1 + 2j, 3 - 4j]).conj().imag
    yield "sparse", torch.eye(4).to_sparse()
    yield "channels last", torch.arange(48.0).reshape(1, 3, 4, 4).contiguous(memory_format=torch.channels_last)


def as_integers(tensor: torch.Tensor) -> torch.Tensor:
    """Return a view of the elements that torch can copy and write to, whatever the dtype."""
    if tensor.is_quantized:
        return tensor.int_repr()
    width = tensor.element_size()
    if width == 16:
        return torch.view_as_real(tensor)
    return tensor.view({1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[width])


def bits(tensor: torch.Tensor) -> bytes:
    """Return the elements' bytes, in order."""
    if tensor.layout != torch.strided:
        tensor = tensor.to_dense()
    flat = as_integers(tensor.detach().resolve_conj().resolve_neg()).contiguous().reshape(-1)
    return b"" if flat.numel() == 0 else flat.view(torch.uint8).numpy().tobytes()


def tensor_difference(sent: torch.Tensor, got: Any) -> str:
    """Return what is different about `got`, or "". Writes to it."""
    if not isinstance(got, type(sent)):
        return f"became {type(got).__name__}"
    before = (sent.dtype, tuple(sent.shape), sent.layout, sent.requires_grad)
    after = (got.dtype, tuple(got.shape), got.layout, got.requires_grad)
    if before != after:
        return f"{before} became {after}"
    if bits(sent) != bits(got):
        return "its elements changed"
    if got.layout == torch.strided and not (got.is_quantized or got.is_conj() or got.is_neg()):
        integers = as_integers(got.detach())
        integers.fill_(1)
        if not bool((integers == 1).all()):
            return "it cannot be written"
    return ""
