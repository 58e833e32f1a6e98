"""Codecs: how `put` and `get` turn objects into message bytes and back.

Guarantee: bytes by default; pickle only when it is asked for by name, since unpickling runs what the sender chose.
`acquire_read` and `acquire_write` never see a codec.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Encode = Callable[[Any], Any]
Decode = Callable[[bytes], Any]


@dataclass(frozen=True)
class Codec:
    """A pair of functions with a name. None stands for bytes as they are."""

    name: str
    encode: Encode | None
    decode: Decode | None


def _msgpack() -> Codec:
    try:
        import msgspec
    except ImportError as error:
        raise ImportError("codec='msgpack' needs msgspec: pip install 'aiospin[msgpack]'") from error
    return Codec("msgpack", msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder().decode)


def _pickle() -> Codec:
    import functools
    import pickle

    return Codec("pickle", functools.partial(pickle.dumps, protocol=5), pickle.loads)


_MAKERS: dict[str, Callable[[], Codec]] = {
    "bytes": lambda: Codec("bytes", None, None),
    "msgpack": _msgpack,
    "pickle": _pickle,
}


def find(name: str) -> Codec:
    """The codec of that name. ValueError names an unknown one; ImportError names the extra that is missing."""
    if not isinstance(name, str):
        raise TypeError(f"codec must be one of {', '.join(_MAKERS)}, got {name!r}")
    if name not in _MAKERS:
        raise ValueError(f"codec must be one of {', '.join(_MAKERS)}, got {name!r}")
    return _MAKERS[name]()
