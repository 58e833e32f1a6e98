"""Bodies: how arguments and results become bytes, with large and array-like things beside them in place.

msgpack   (default; the extra `workers`) plain objects. NumPy arrays, anywhere, and memoryviews, bytearrays and long
          bytes at the top level travel in place: arrays and views arrive as read-only views of the slot, bytes as
          bytes.
pickle    only when asked for by name: unpickling runs what the sender chose. Buffers travel in place by protocol 5.

Guarantee: `decode(*encode(value))` is what msgspec makes of a value as plain objects (tuples and sets are lists,
UUIDs are text), arrays and bytes being themselves; with pickle it equals the value. What a codec does not take raises
TypeError at the sender, naming the type.
"""

from __future__ import annotations

import inspect
import pickle
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeAlias, cast

from aiospin.workers._envelope import CorruptMessage

Encoded: TypeAlias = tuple[bytes, Sequence[Any]]
"""A body, and byte views of what travels in place beside it."""

_ARRAY, _VIEW, _BYTES = 1, 2, 3  # extension types
_PICKLE: Final = "a group with codec='pickle' sends whatever pickles"
_IN_PLACE: Final = 4096  # bytes objects of this length and more are not copied into the body


class Body(Protocol):
    """A codec for bodies."""

    name: str

    def encode_call(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Encoded:
        """Those of a call; `decode` gives the pair back."""
        ...

    def encode(self, value: Any) -> Encoded:
        """The body and the buffers in place beside it."""
        ...

    def decode(self, body: memoryview, buffers: Sequence[memoryview], *, own: bool = False) -> Any:
        """The value. Arrays and views in it keep the slot, unless they are to `own` their bytes."""
        ...


class Msgpack:
    """Plain objects by msgspec."""

    name = "msgpack"

    def __init__(self) -> None:
        try:
            import msgspec
        except ImportError as error:
            raise ImportError("the msgpack codec needs msgspec: pip install 'aiospin[workers]'") from error
        self._ext = msgspec.msgpack.Ext
        self._errors = msgspec.MsgspecError
        self._buffers: list[Any] = []
        self._received: Sequence[memoryview] = ()
        self._own = False
        self._encoder = msgspec.msgpack.Encoder(enc_hook=self._encode_other)
        self._decoder = msgspec.msgpack.Decoder(ext_hook=self._decode_other)

    def encode_call(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Encoded:
        """Those of a call; `decode` gives the pair back."""
        self._buffers = []
        outside = self._outside
        return self._finish(([outside(arg) for arg in args], {name: outside(arg) for name, arg in kwargs.items()}))

    def encode(self, value: Any) -> Encoded:
        """The body and the buffers in place beside it."""
        self._buffers = []
        if type(value) is tuple or type(value) is list:
            items = cast("Sequence[Any]", value)
            return self._finish([self._outside(item) for item in items])
        return self._finish(self._outside(value))

    def _finish(self, value: Any) -> Encoded:
        try:
            return self._encoder.encode(value), self._buffers
        finally:
            self._buffers = []

    def decode(self, body: memoryview, buffers: Sequence[memoryview], *, own: bool = False) -> Any:
        """The value. Arrays and views in it keep the slot, unless they are to `own` their bytes."""
        self._received, self._own = buffers, own
        try:
            return self._decoder.decode(body)
        except self._errors as error:
            raise CorruptMessage(f"a body cannot be decoded: {error}") from error
        finally:
            self._received = ()

    def _outside(self, item: Any) -> Any:
        if type(item) is bytes:
            return self._place(_BYTES, item) if len(item) >= _IN_PLACE else item
        if type(item) is memoryview or type(item) is bytearray:
            return self._place(_VIEW, memoryview(item))
        return item

    def _place(self, code: int, buffer: Any) -> Any:
        view = memoryview(buffer)
        if not view.c_contiguous:
            raise TypeError("a buffer must be C-contiguous to travel")
        self._buffers.append(view.cast("B") if view.nbytes else b"")  # cast refuses shapes with a zero in them
        return self._ext(code, len(self._buffers).to_bytes(4, "little"))

    def _encode_other(self, item: Any) -> Any:
        numpy = sys.modules.get("numpy")
        if numpy is not None and isinstance(item, numpy.ndarray):
            if type(item) not in (numpy.ndarray, numpy.memmap):
                raise TypeError(f"{_name_of(item)} is more than an array; {_PICKLE}")
            if item.dtype.hasobject:
                raise TypeError(f"an array of {item.dtype} holds Python objects; {_PICKLE}")
            array = numpy.ascontiguousarray(item)
            self._buffers.append(memoryview(array.reshape(-1).view(numpy.uint8)) if array.nbytes else b"")
            kind = numpy.lib.format.dtype_to_descr(array.dtype)
            head = self._encoder.encode([len(self._buffers), kind, list(item.shape)])
            return self._ext(_ARRAY, head)
        if numpy is not None and isinstance(item, numpy.generic):
            plain = item.item()
            if not isinstance(plain, numpy.generic):
                return plain
        if inspect.isgenerator(item) or inspect.isasyncgen(item):
            raise TypeError(f"{item.__qualname__}() gives its results one by one: call it with stream()")
        raise TypeError(f"{_name_of(item)} is no plain object; {_PICKLE}")

    def _decode_other(self, code: int, data: memoryview) -> Any:
        if code == _ARRAY:
            import numpy

            try:
                index, kind, shape = self._decoder.decode(data)
                dtype = numpy.lib.format.descr_to_dtype(_as_descr(kind))
                array: Any = numpy.frombuffer(self._kept(index), dtype)
                return array.reshape(shape)
            except (ValueError, TypeError, OverflowError, MemoryError) as error:
                raise CorruptMessage(f"an array cannot be read: {error}") from error
        if code in (_VIEW, _BYTES):
            index = int.from_bytes(data, "little")
            return self._kept(index) if code == _VIEW else bytes(self._buffer(index))
        raise CorruptMessage(f"extension type {code} is unknown")

    def _kept(self, index: int) -> memoryview:
        buffer = self._buffer(index)
        return memoryview(bytearray(buffer)) if self._own else buffer

    def _buffer(self, index: int) -> memoryview:
        if not 1 <= index <= len(self._received):
            raise CorruptMessage(f"buffer {index} of {len(self._received)} is missing")
        return self._received[index - 1]


def _name_of(item: object) -> str:
    return f"{type(item).__module__}.{type(item).__qualname__}"


def _as_descr(kind: Any) -> Any:
    """What describes an array's elements, with the tuples that msgpack made lists of: (name, kind[, shape]) each."""
    if isinstance(kind, str):
        return kind
    return [
        (tuple(cast("list[str]", name)) if isinstance(name, list) else name, _as_descr(of_field), *map(tuple, shape))
        for name, of_field, *shape in kind
    ]


class Pickle:
    """Whatever pickles."""

    name = "pickle"

    def encode_call(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Encoded:
        """Those of a call; `decode` gives the pair back."""
        return self.encode((args, kwargs))

    def encode(self, value: Any) -> Encoded:
        """The body and the buffers in place beside it."""
        buffers: list[pickle.PickleBuffer] = []
        body = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
        return body, [buffer.raw() for buffer in buffers]

    def decode(self, body: memoryview, buffers: Sequence[memoryview], *, own: bool = False) -> Any:
        """The value. What lies in its buffers keeps the slot, unless it is to `own` its bytes."""
        return pickle.loads(body, buffers=[bytearray(buffer) for buffer in buffers] if own else buffers)


_BODIES: Final[Mapping[str, Callable[[], Body]]] = {"msgpack": Msgpack, "pickle": Pickle}


def find(name: str) -> Body:
    """The codec of that name. ValueError names an unknown one, ImportError the extra that is missing."""
    if name not in _BODIES:
        raise ValueError(f"codec must be one of {', '.join(_BODIES)}, got {name!r}")
    return _BODIES[name]()
