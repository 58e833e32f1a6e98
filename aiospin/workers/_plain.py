"""Plain values as JSON has them, and tuples, bytes and dictionaries in forms of their own.

Guarantee: `from_plain(to_plain(value))` equals the value and has its type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, cast

_SIMPLE: Final = (str, float, bool, type(None))
_LONGEST_INT: Final = 14000  # bits; longer ones have no text in Python
_DEEPEST: Final = 20


def to_plain(value: object, otherwise: Callable[[object], str] | None = None, depth: int = 0) -> object:
    """What JSON can hold of a value. What it cannot is made text of by `otherwise`; TypeError without that."""
    kind = type(value)
    if kind in _SIMPLE or (kind is int and cast(int, value).bit_length() <= _LONGEST_INT):
        return value
    if kind is bytes:
        return {"bytes": cast(bytes, value).decode("latin-1")}
    if depth < _DEEPEST:
        if kind is list or kind is tuple:
            items = [to_plain(item, otherwise, depth + 1) for item in cast("Iterable[object]", value)]
            return items if kind is list else {"tuple": items}
        if kind is dict:
            pairs = cast("Mapping[object, object]", value).items()
            return {"dict": [[to_plain(part, otherwise, depth + 1) for part in pair] for pair in pairs]}
    if otherwise is None:
        raise TypeError(f"{kind.__qualname__} is not plain")
    return otherwise(value)


def from_plain(value: Any) -> Any:
    """The value again."""
    if isinstance(value, list):
        return [from_plain(item) for item in cast("Iterable[Any]", value)]
    if isinstance(value, dict):
        ((form, inner),) = cast("dict[str, Any]", value).items()
        if form == "bytes":
            return inner.encode("latin-1")
        if form == "tuple":
            return tuple(from_plain(item) for item in inner)
        return {from_plain(key): from_plain(item) for key, item in inner}
    return value
