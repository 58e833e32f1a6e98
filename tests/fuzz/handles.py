"""One execution of the kind `handles`: text, or a Handle put together by hand, that is not what `str(handle)` gave.

Guarantee: reading it raises AttachError; or it is well-formed, and following it raises AttachError, or leads where it
says. A codec that this aiospin does not have is a ValueError.
"""

from __future__ import annotations

import base64
import collections
import functools
import json
import random
import zlib
from typing import Any

import aiospin
from aiospin import AttachError
from aiospin._handle import Handle

_ODD = ("٣", "²", "\ud800", "\0", "é", " ", "\n", ".", "-", "_", "=", "/", "%", "0", "f")


@functools.cache
def _queue() -> aiospin.Queue[bytes]:
    return aiospin.Queue(readers=2, capacity=65536)


@functools.cache
def genuine() -> str:
    """A handle that leads somewhere."""
    return str(_queue().reader(1).handle)


def strange_value(chance: random.Random, depth: int = 3) -> Any:
    """Anything that JSON can say, and a little more."""
    kinds: list[Any] = [
        *(None, True, False, 0, 1, -1, 3, 1 << 31, 1 << 32, 1 << 63, 1 << 64, 10**40, 0.5, -0.0, float("inf")),
        *("", "/", "/dev/shm", "/\ud800", "a\0b", "00" * 16, "٣" * 32, "bytes", "pickle", "x" * 300, "/" + "y" * 5000),
    ]
    if depth and chance.random() < 0.2:
        return [strange_value(chance, depth - 1) for _ in range(chance.randrange(4))]
    if depth and chance.random() < 0.1:
        return {"a": strange_value(chance, depth - 1)}
    return chance.choice(kinds)


def sealed(body: str, version: str = "1") -> str:
    """A handle around any body, with a checksum that fits."""
    return f"aiospin-{version}.{body}.{zlib.crc32(body.encode('utf-8', 'surrogatepass')):08x}"


def _fields() -> list[Any]:
    body = genuine().split(".")[1]
    fields: list[Any] = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    return fields


def _encoded(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def altered(chance: random.Random) -> str:
    """Text near a handle."""
    text = list(genuine())
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(text))
        change = chance.randrange(4)
        if change == 0:
            del text[at:]
        elif change == 1:
            text[at] = chance.choice((*_ODD, chr(chance.randrange(32, 0x2000))))
        elif change == 2:
            text.insert(at, chance.choice(_ODD))
        else:
            text[at : at + chance.randrange(5)] = []
        if not text:
            break
    return "".join(text)


def resealed(chance: random.Random) -> str:
    """A checksum that fits, around fields that do not."""
    fields = _fields()
    for _ in range(chance.randint(1, 3)):
        fields[chance.randrange(13)] = strange_value(chance)
    if chance.random() < 0.1:
        fields = fields[: chance.randrange(13)] if chance.random() < 0.5 else [*fields, strange_value(chance)]
    return sealed(_encoded(fields), chance.choice(("1", "1", "1", "1", "01", "2", "٣", "1" * 20, "", "-1")))


def noise(chance: random.Random) -> str:
    """A body that decodes to bytes of no meaning, to brackets, or not at all."""
    size = chance.randrange(200)
    raw = chance.choice((chance.randbytes(size), b"[" * size * 1000, b"1" * size * 100, b'{"a":' * size * 100))
    body = base64.urlsafe_b64encode(raw).decode().rstrip("=")
    return sealed(body if chance.random() < 0.8 else "".join(chance.choices(_ODD, k=size)))


def forged(chance: random.Random) -> Handle:
    """An object of the right type around anything, as a pickle could make it."""
    handle, ref = Handle.__new__(Handle), Handle.parse(genuine()).segment
    fields: dict[str, Any] = {"segment": ref, "role": 1, "codec": "bytes"}
    within = dict(vars(ref))
    for _ in range(chance.randint(1, 3)):
        place = chance.choice((fields, within))
        name = chance.choice(list(place) or ["extra"])
        if chance.random() < 0.2:
            place.pop(name, None)
        else:
            place[name] = strange_value(chance)
    if fields.get("segment") is ref and chance.random() < 0.8:
        strange = type(ref).__new__(type(ref))
        vars(strange).update(within)
        fields["segment"] = strange
    vars(handle).update(fields)
    return handle


def execute(_number: int, chance: random.Random, tally: collections.Counter[str]) -> None:
    """Make up a handle and follow it."""
    handle: Any = chance.choice((altered, resealed, resealed, noise, forged))(chance)
    try:
        end = aiospin.attach(handle)
    except AttachError as error:
        assert len(str(error)) < 1000, "an error does not repeat all that it was given"
        tally[type(error).__name__] += 1
    except ValueError as error:
        assert "codec must be one of" in str(error), repr(error)
        tally["ValueError"] += 1
    else:
        tally["works"] += 1
        end.close()
