"""CPU tensors: dtype, shape and every bit arrive, in memory that can be written, without a copy into the pickle."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from aiospin.compat.vllm import MessageQueue
from aiospin.compat.vllm._loan import LEAST

torch: Any
try:
    import torch
except ImportError:
    torch = None

pytestmark = [
    pytest.mark.skipif(torch is None, reason="needs torch"),
    pytest.mark.usefixtures("leaves_nothing"),
    pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental"),
    pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor"),
    pytest.mark.filterwarnings("ignore:TypedStorage is deprecated"),
]

SHAPES = [(), (0,), (1,), (3, 0, 2), (3, 5), (1024, 1031)]


def dtypes() -> list[Any]:
    """Those of which tensors can be made: others have no more than a name, or need a quantizer."""
    if torch is None:
        return ["every dtype"]
    found = {each for each in vars(torch).values() if isinstance(each, torch.dtype)}
    return sorted(filter(can_be_had, found), key=str)


def can_be_had(dtype: Any) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            torch.zeros(32, dtype=torch.uint8).view(dtype).clone()
        except RuntimeError:
            return False
    return True


def tensor(dtype: Any, shape: tuple[int, ...]) -> Any:
    count = int(torch.Size(shape).numel())
    if not count:
        return torch.empty(shape, dtype=dtype)
    raw = torch.randint(0, 256, (count * torch.empty(1, dtype=dtype).element_size(),), dtype=torch.uint8)
    return raw.view(dtype).reshape(shape)


def bits(each: Any) -> bytes:
    return bytes(each.contiguous().reshape(-1).view(torch.uint8).tolist()) if each.numel() else b""


@pytest.fixture
def ends() -> Iterator[tuple[MessageQueue, MessageQueue]]:
    writer = MessageQueue(1, 1)
    reader = MessageQueue.create_from_handle(writer.export_handle(), 0)
    yield writer, reader
    writer.shutdown()
    reader.shutdown()


@pytest.mark.parametrize("dtype", dtypes(), ids=str)
def test_every_dtype_arrives_bit_by_bit_and_can_be_written(ends: tuple[MessageQueue, MessageQueue], dtype: Any) -> None:
    writer, reader = ends
    sent = [tensor(dtype, shape) for shape in SHAPES]
    expected = [bits(each) for each in sent]
    writer.enqueue(sent, timeout=0)
    found = reader.dequeue(timeout=0)
    assert [each.dtype for each in found] == [dtype] * len(SHAPES)
    assert [tuple(each.shape) for each in found] == SHAPES
    assert [bits(each) for each in found] == expected
    for each in found:
        if each.numel() and each.dim():
            each.view(torch.uint8).fill_(255)
            assert set(bits(each)) == {255}
    assert [bits(each) for each in sent] == expected, "the sender's own were written"


def test_at_least_the_usual_dtypes_were_tried() -> None:
    usual = {
        torch.float32,
        torch.bfloat16,
        torch.float16,
        torch.float8_e4m3fn,
        torch.int64,
        torch.bool,
        torch.complex64,
    }
    assert usual <= set(dtypes())


def test_large_tensors_are_lent_and_small_ones_are_their_own(ends: tuple[MessageQueue, MessageQueue]) -> None:
    writer, reader = ends
    writer.enqueue({"large": torch.arange(LEAST, dtype=torch.int32)[: LEAST // 2], "small": torch.arange(3)})
    found = reader.dequeue()
    assert reader._receiver is not None and len(reader._receiver.loans.lent) == 1
    assert torch.equal(found["large"], torch.arange(LEAST // 2, dtype=torch.int32))
    found.clear()
    assert len(reader._receiver.loans.lent) == 0


def views() -> dict[str, Any]:
    whole = torch.randn(600, 500)
    return {
        "transposed": whole.t(),
        "every other row": whole[::2],
        "part": whole[3:5, 7:],
        "expanded": torch.arange(5.0).expand(1000, 5),
        "conjugate": whole.to(torch.complex64).conj(),
        "negative": torch.complex(whole, whole).conj().imag,
        "channels last": torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last),
    }


@pytest.mark.parametrize(
    "name",
    ["transposed", "every other row", "part", "expanded", "conjugate", "negative", "channels last"],
)
def test_a_view_arrives_as_what_it_shows(ends: tuple[MessageQueue, MessageQueue], name: str) -> None:
    writer, reader = ends
    sent = views()[name]
    writer.enqueue(sent)
    found = reader.dequeue()
    assert torch.equal(found, sent) and not found.is_conj() and not found.is_neg()


def others() -> dict[str, Any]:
    return {
        "with gradient": torch.randn(4, requires_grad=True),
        "parameter": torch.nn.Parameter(torch.randn(3, 3)),
        "sparse": torch.eye(50).to_sparse(),
        "quantized": torch.quantize_per_tensor(torch.randn(10), 0.1, 10, torch.qint8),
    }


@pytest.mark.parametrize("name", ["with gradient", "parameter", "sparse", "quantized"])
def test_other_tensors_travel_as_torch_has_it(ends: tuple[MessageQueue, MessageQueue], name: str) -> None:
    writer, reader = ends
    sent = others()[name]
    writer.enqueue([sent])
    (found,) = reader.dequeue()
    assert type(found) is type(sent) and found.requires_grad == sent.requires_grad and found.layout == sent.layout
    dense, expected = (each.dequantize() if each.is_quantized else each.to_dense() for each in (found, sent))
    assert found.is_quantized == sent.is_quantized and dense.shape == expected.shape


def odd() -> dict[str, Any]:
    gone, smaller = torch.ones(100_000), torch.ones(100_000)
    gone.untyped_storage().resize_(0)
    smaller.untyped_storage().resize_(16)
    return {
        "storage taken away": gone,
        "storage made smaller": smaller,
        "zeros that are nowhere": torch._efficientzerotensor(100_000),
        "nested": torch.nested.nested_tensor([torch.ones(3), torch.ones(5)]),
        "functional": torch._to_functional_tensor(torch.ones(100_000)),
    }


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize(
    "name", ["storage taken away", "storage made smaller", "zeros that are nowhere", "nested", "functional"]
)
def test_tensors_without_memory_of_their_own_end_no_process(ends: tuple[MessageQueue, MessageQueue], name: str) -> None:
    """As torch pickles them, or whatever it raises."""
    writer, reader = ends
    sent = odd()[name]
    try:
        pickle.loads(pickle.dumps(sent))
    except RuntimeError as error:  # of which some are subclasses
        with pytest.raises(type(error)):
            writer.enqueue([sent])
            reader.dequeue(timeout=0)
    else:
        writer.enqueue([sent])
        assert type(reader.dequeue(timeout=0)[0]) is type(sent)


def test_the_bytes_of_a_tensor_are_not_in_the_pickle() -> None:
    from aiospin.compat.vllm import _wire

    class Writer:
        _cursor = 0

    _, stream, *_ = _wire.encode(torch.zeros(1 << 20), Writer())
    assert len(stream) < 200


def test_one_tensor_twice_in_a_message_is_one_tensor(ends: tuple[MessageQueue, MessageQueue]) -> None:
    writer, reader = ends
    each = torch.zeros(LEAST)
    writer.enqueue([each, each])
    first, second = reader.dequeue()
    assert first is second


def test_tensors_beyond_the_ring_arrive(ends: tuple[MessageQueue, MessageQueue]) -> None:
    from concurrent.futures import ThreadPoolExecutor

    writer, reader = ends
    sent = torch.randint(0, 255, (60 << 20,), dtype=torch.uint8)
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(writer.enqueue, [sent, 5], timeout=60)
        found, number = reader.dequeue(timeout=60)
        done.result()
    assert torch.equal(found, sent) and number == 5
    found.fill_(1)


def test_nothing_here_imports_torch_for_those_who_have_none() -> None:
    import subprocess
    import sys

    script = "import sys; from aiospin.compat.vllm import MessageQueue as Q; w = Q(1, 1); w.enqueue([1]); "
    script += "r = Q.create_from_handle(w.handle, 0); assert r.dequeue() == [1]; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
    assert pickle.HIGHEST_PROTOCOL >= 5
