"""spinloop as the extension that it stands in for: arguments, what it returns and raises; and memory_fence.

How changes are seen is `lowlevel.spinloop`'s, and tested there. `naps` plays the clock of both loops: nothing sleeps.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import threading
import time
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import pytest

from aiospin import _deadline, _pages, lowlevel
from aiospin.compat.vllm import _settings, _spin
from aiospin.compat.vllm._spin import memory_fence, spinloop

pytestmark = pytest.mark.usefixtures("leaves_nothing")


class Odd(Exception):
    pass


@pytest.fixture(params=[True, False], ids=["native_wait", "in_turn"])
def native_wait(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Both ways to wait; the results are the same."""
    monkeypatch.setattr(_settings, "NATIVE_WAIT", request.param)
    wanted: bool = request.param
    return wanted


@pytest.fixture
def naps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What both loops would have slept: their clock goes on by as much, and by a nanosecond with every look at it."""
    asked: list[float] = []
    now = 0.0

    def monotonic() -> float:
        nonlocal now
        now += 1e-9
        return now

    def sleep(seconds: float) -> None:
        nonlocal now
        asked.append(seconds)
        now += seconds

    clock = SimpleNamespace(sleep=sleep, monotonic=monotonic)
    for module in (_spin, _deadline, lowlevel):
        monkeypatch.setattr(module, "time", clock)
    return asked


class Answers:
    """A callback that gives these answers, and then the last one again and again; it does something beside each."""

    def __init__(self, *answers: object, beside: Callable[[int], object] = lambda call: None) -> None:
        self.answers = answers
        self.beside = beside
        self.calls = 0

    def __call__(self) -> object:
        self.calls += 1
        self.beside(self.calls)
        return self.answers[min(self.calls, len(self.answers)) - 1]


def blocks(length: int) -> list[Any]:
    """Buffers of so many bytes, of kinds and places that there are."""
    odd = memoryview(bytearray(length + 3))[3:]
    return [bytearray(length), bytes(length), odd, (ctypes.c_uint8 * length)()]


# what it returns


@pytest.mark.parametrize("length", [0, 1, 7, 64, 65, 4096, 4097, 10000])
def test_it_is_true_once_the_callback_is(native_wait: bool, length: int) -> None:
    for buffer in blocks(length):
        callback = Answers(False, 0, None, [], "at last")
        assert spinloop(buffer, callback) is True
        assert callback.calls == 5


def test_it_is_false_when_the_time_is_over(native_wait: bool, naps: list[float]) -> None:
    callback = Answers(False)
    assert spinloop(bytearray(8), callback, timeout=2.0) is False
    assert callback.calls >= 2
    assert sum(naps) >= 1.9


@pytest.mark.parametrize("length", [0, 8, 5000])
def test_the_time_is_not_over_sooner(native_wait: bool, length: int) -> None:
    began = time.monotonic()
    assert spinloop(bytearray(length), Answers(False), 0.005) is False
    assert time.monotonic() - began >= 0.005


@pytest.mark.parametrize("timeout", [0.0, 0, -0.0, -1.0, -math.inf, math.nan, math.inf, 1e300])
def test_what_is_no_limit(native_wait: bool, naps: list[float], timeout: float) -> None:
    """An hour of naps, and it goes on waiting."""
    spent = Answers(False, beside=lambda call: give_up() if sum(naps) > 3600 else None)

    def give_up() -> None:
        raise Odd

    naps.append(3600 - 0.01)
    with pytest.raises(Odd):
        spinloop(bytearray(8), spent, timeout)


@pytest.mark.parametrize("timeout", [60, True, Fraction(60), Decimal(60), 1e-9])
def test_what_is_a_number(native_wait: bool, timeout: Any) -> None:
    assert spinloop(bytearray(8), lambda: True, timeout) is True


def test_places_and_keywords(native_wait: bool) -> None:
    assert spinloop(buffer=bytearray(8), callback=lambda: True, timeout=1.0)
    assert spinloop(bytearray(8), lambda: True, timeout=1.0)
    assert spinloop(bytearray(8), lambda: True, 1.0)
    assert spinloop(bytearray(8), callback=lambda: True)


def test_somebody_elses_store_ends_it(native_wait: bool) -> None:
    """The other thread stores only once it is waited for: after the second call."""
    flags = mmap.mmap(-1, 5000)
    waited_for = threading.Event()
    callback = Answers(False, beside=lambda call: waited_for.set() if call == 2 else None)

    def store() -> None:
        waited_for.wait()
        flags[100] = 1

    thread = threading.Thread(target=store)
    thread.start()
    assert spinloop(flags, lambda: callback() or flags[100] == 1) is True
    thread.join()
    flags.close()


def test_a_condition_on_other_memory_ends_it(native_wait: bool, naps: list[float]) -> None:
    """The buffer never changes; the callback is called all the same, and no nap is long."""
    callback = Answers(*[False] * 50, True)
    assert spinloop(bytearray(8), callback) is True
    assert callback.calls == 51
    assert max(naps) <= (50e-6 if native_wait else 1e-3)


def test_in_turn_it_gives_up_the_cpu_first_and_then_naps_longer_and_longer(
    monkeypatch: pytest.MonkeyPatch, naps: list[float]
) -> None:
    monkeypatch.setattr(_settings, "NATIVE_WAIT", False)
    assert spinloop(bytearray(8), Answers(*[False] * 24, True))
    assert naps == [0.0] * 16 + [50e-6, 100e-6, 200e-6, 400e-6, 800e-6, 1e-3, 1e-3, 1e-3]


def test_no_nap_outlasts_the_time(monkeypatch: pytest.MonkeyPatch, naps: list[float]) -> None:
    monkeypatch.setattr(_settings, "NATIVE_WAIT", False)
    assert spinloop(bytearray(8), Answers(False), 120e-6) is False
    assert sum(naps) <= 120e-6


def test_off_means_that_no_byte_is_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any, **options: Any) -> None:
        raise AssertionError("the CPU's wait was used")

    monkeypatch.setattr(lowlevel, "spinloop", refuse)
    monkeypatch.setattr(_settings, "NATIVE_WAIT", False)
    assert spinloop(bytearray(8), Answers(False, True)) is True
    monkeypatch.setattr(_settings, "NATIVE_WAIT", True)
    with pytest.raises(AssertionError, match="was used"):
        spinloop(bytearray(8), Answers(False, True))


# what it raises


@pytest.mark.parametrize("length", [8, 5000])
@pytest.mark.parametrize("number", [1, 2, 5])
@pytest.mark.parametrize("kind", [Odd, TimeoutError, KeyboardInterrupt, StopIteration])
def test_what_the_callback_raises_comes_out_with_the_buffer_released(
    native_wait: bool, length: int, number: int, kind: type[BaseException]
) -> None:
    """TimeoutError too: it is not taken for the end of this wait's own time."""
    buffer = bytearray(length)

    def beside(call: int) -> None:
        if call == number:
            raise kind("its own")

    with pytest.raises(kind, match="its own"):
        try:
            spinloop(buffer, Answers(False, beside=beside), 60.0)
        except kind:
            buffer.extend(b"while its traceback is alive")
            raise


def test_an_answer_that_is_neither_comes_out_too(native_wait: bool) -> None:
    class Neither:
        def __bool__(self) -> bool:
            raise TimeoutError("neither")

    with pytest.raises(TimeoutError, match="neither"):
        spinloop(bytearray(8), Neither, 60.0)


@pytest.mark.parametrize("timeout", [0.0, 1e-4])
def test_the_buffer_is_released_when_it_returns(native_wait: bool, timeout: float) -> None:
    buffer = bytearray(5000)
    spinloop(buffer, lambda: timeout == 0.0, timeout)
    buffer.extend(b"and may grow")


def test_bad_input_is_named(native_wait: bool) -> None:
    ready: Any = lambda: True  # noqa: E731
    buffer: Any = bytearray(64)
    with pytest.raises(TypeError, match="callback must be callable, not 3"):
        spinloop(buffer, 3)  # type: ignore[arg-type]
    for timeout in ("1", None, [1], 1j):
        with pytest.raises(TypeError, match="timeout must be a number of seconds, not"):
            spinloop(buffer, ready, timeout)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="bytes-like object is required, not 'int'"):
        spinloop(5, ready)
    with pytest.raises(BufferError, match="gaps"):
        spinloop(memoryview(buffer)[::2], ready)
    with pytest.raises(TypeError):
        spinloop(buffer, ready, 1.0, 2.0)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="limit"):
        spinloop(buffer, ready, limit=1.0)  # type: ignore[call-arg]


def test_a_large_buffer_of_other_items_is_watched_too(native_wait: bool) -> None:
    words = memoryview(bytearray(64000)).cast("d", shape=[80, 100])
    callback = Answers(False, True)
    assert spinloop(words, callback) is True
    assert callback.calls == 2


# memory_fence


def test_a_fence_is_the_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(_pages, "barrier", lambda: not asked.append("barrier"))
    monkeypatch.setattr(_spin, "_exchange", None)  # not needed
    assert memory_fence() is None  # type: ignore[func-returns-value]
    assert asked == ["barrier"]


def test_a_fence_that_the_kernel_refuses_is_an_exchange(monkeypatch: pytest.MonkeyPatch) -> None:
    class Lock:
        taken = 0

        def __enter__(self) -> None:
            self.taken += 1

        def __exit__(self, *error: object) -> None:
            return None

    lock = Lock()
    monkeypatch.setattr(_pages, "barrier", lambda: False)
    monkeypatch.setattr(_spin, "_exchange", lock)
    memory_fence()
    assert lock.taken == 1


def test_fences_of_many_threads_do_not_wait_for_each_other() -> None:
    threads = [threading.Thread(target=lambda: [memory_fence() for _ in range(100)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
