"""CPU tensors as out-of-band buffers (pickle protocol 5): their bytes are never copied into the pickle.

Guarantee: a dense CPU tensor without gradient arrives with dtype, shape and every bit, in memory that can be written;
whatever else torch has (gradients, other devices and layouts, subclasses) travels as torch's own pickling does it.
Assumption: torch is imported by whoever has tensors; this file never imports it first.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import pickle
import sys
from typing import Any


def tensor_type() -> type[Any] | None:
    """torch.Tensor where torch was imported; None where nobody can have one."""
    torch = sys.modules.get("torch")
    return None if torch is None else getattr(torch, "Tensor", None)  # None, too, while it is being imported


def reduce_tensor(tensor: Any) -> Any:
    """What `copyreg.dispatch_table` holds for torch.Tensor: a buffer, the shape and the dtype's name."""
    torch = sys.modules["torch"]
    if not _is_plain(torch, tensor):
        return tensor.__reduce_ex__(pickle.HIGHEST_PROTOCOL)
    dense = _dense(torch, tensor.resolve_conj().resolve_neg())
    size = dense.numel() * dense.element_size()
    # By address, since neither NumPy nor a view as bytes knows all dtypes.
    raw: Any = (ctypes.c_ubyte * size).from_address(dense.data_ptr()) if size else b""
    if size:
        raw.owner = dense  # a copy may be nobody else's
    return rebuild_tensor, (pickle.PickleBuffer(raw), tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))


def _dense(torch: Any, tensor: Any) -> Any:
    """The same without gaps. Some dtypes of one byte have no code to copy them: as bytes they have."""
    if tensor.is_contiguous():
        return tensor
    return (tensor.view(torch.uint8) if tensor.element_size() == 1 else tensor).contiguous()


def rebuild_tensor(buffer: Any, shape: tuple[int, ...], dtype_name: str) -> Any:
    """The tensor on that memory; on a copy of it where it cannot be written."""
    torch = importlib.import_module("torch")
    dtype = getattr(torch, dtype_name)
    raw = memoryview(buffer)
    if not raw.nbytes:
        return torch.empty(shape, dtype=dtype)
    flat = torch.frombuffer(bytearray(buffer) if raw.readonly else buffer, dtype=torch.uint8)
    return flat.view(dtype).reshape(shape)


def _is_plain(torch: Any, tensor: Any) -> bool:
    return (
        not tensor.is_nested
        and tensor.device.type == "cpu"
        and tensor.layout is torch.strided
        and not tensor.requires_grad
        and not tensor.is_quantized
        and not tensor._is_zerotensor()
        and not torch._is_functional_tensor(tensor)
        and _can_view_bytes(tensor.dtype)
        and _is_backed(tensor)
    )


def _is_backed(tensor: Any) -> bool:
    """Whether there is memory under all of it. A storage can be made smaller than the tensors that it has."""
    if not tensor.numel():
        return True
    extent = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    needed = (tensor.storage_offset() + extent) * tensor.element_size()
    return bool(tensor.data_ptr() != 0 and needed <= tensor.untyped_storage().nbytes())


@functools.cache
def _can_view_bytes(dtype: Any) -> bool:
    """Whether torch can see bytes as this dtype. A few have no more than a name."""
    torch = sys.modules["torch"]
    try:
        torch.zeros(16, dtype=torch.uint8).view(dtype)
    except RuntimeError:
        return False
    return True
