"""`lowlevel.spinloop`: a predicate in Python, called when the bytes of a buffer change, and now and then.

That every change of every byte ends a native watch is shown in tests/native/wait/test_bytes_watch.cpp, and here through
the binding; the loop around it is stepped by playing its clock: `naps` records how long it would have slept.
"""

from __future__ import annotations

import ctypes
import mmap
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from programs import Program

from aiospin import _backend, lowlevel
from aiospin.lowlevel import spinloop

pytestmark = pytest.mark.usefixtures("leaves_nothing")

NAPS = pytest.mark.parametrize("max_nap", [0, 1e-5, 1e-3])


class Odd(Exception):
    pass


@pytest.fixture
def naps(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """The naps that are asked for, and not slept."""
    asked: list[float] = []
    monkeypatch.setattr(lowlevel, "time", SimpleNamespace(sleep=asked.append))
    yield asked


class Answers:
    """A predicate that gives these answers, one after the other, and does something beside each."""

    def __init__(self, *answers: object, beside: Callable[[int], object] = lambda call: None) -> None:
        self.answers = answers
        self.beside = beside
        self.calls = 0

    def __call__(self) -> object:
        self.calls += 1
        self.beside(self.calls)
        return self.answers[self.calls - 1]


# what it returns and raises


@NAPS
def test_the_first_true_answer_is_returned(max_nap: float) -> None:
    predicate = Answers(0, "", None, "at last", "and more")
    assert spinloop(bytearray(8), predicate, max_nap=max_nap) == "at last"
    assert predicate.calls == 4


@pytest.mark.parametrize("timeout", [None, 0, 0.0, 60])
def test_what_is_true_already_is_asked_once(timeout: float | None) -> None:
    predicate = Answers([1])
    assert spinloop(b"read-only", predicate, timeout=timeout) == [1]
    assert predicate.calls == 1


def test_a_timeout_of_0_asks_once() -> None:
    predicate = Answers(False)
    with pytest.raises(TimeoutError, match="not true within 0 s"):
        spinloop(bytearray(8), predicate, timeout=0)
    assert predicate.calls == 1


@NAPS
@pytest.mark.parametrize("timeout", [1e-5, 0.005])
def test_a_timeout_comes_no_sooner_than_asked(max_nap: float, timeout: float) -> None:
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        spinloop(bytearray(8), lambda: False, timeout=timeout, max_nap=max_nap)
    assert time.monotonic() - began >= timeout


@NAPS
def test_changes_that_never_do_put_no_end_to_the_timeout(max_nap: float) -> None:
    buffer = bytearray(8)

    def tick() -> bool:
        buffer[0] ^= 1  # seen at the very next watch, so that it never naps
        return False

    with pytest.raises(TimeoutError):
        spinloop(buffer, tick, timeout=0.005, max_nap=max_nap)


@pytest.mark.parametrize("number", [1, 2, 5])
def test_what_the_predicate_raises_comes_out_with_the_buffer_released(number: int) -> None:
    buffer = bytearray(8)

    def beside(call: int) -> None:
        if call == number:
            raise Odd

    with pytest.raises(Odd):
        try:
            spinloop(buffer, Answers(*[False] * number, beside=beside))
        except Odd:
            buffer.extend(b"while its traceback is alive")
            raise


def test_an_answer_that_cannot_say_whether_it_is_true_comes_out_too() -> None:
    class Neither:
        def __bool__(self) -> bool:
            raise Odd

    buffer = bytearray(8)
    with pytest.raises(Odd):
        spinloop(buffer, Neither)
    buffer.extend(b"released")


def test_the_buffer_is_held_while_it_is_watched_and_no_longer() -> None:
    with mmap.mmap(-1, 4096) as shared:

        def close() -> None:
            with pytest.raises(BufferError):
                shared.close()

        spinloop(shared, Answers(False, True, beside=lambda call: close()))
        with pytest.raises(TimeoutError):
            try:
                spinloop(shared, lambda: False, timeout=0)
            except TimeoutError:
                shared.close()
                raise


@pytest.mark.parametrize(
    ("buffer", "predicate", "options", "error"),
    [
        ("text", bool, {}, TypeError),
        (None, bool, {}, TypeError),
        (bytearray(), bool, {}, ValueError),
        (bytearray(4097), bool, {}, ValueError),
        (memoryview(bytearray(8))[::2], bool, {}, BufferError),
        (bytearray(8), None, {}, TypeError),
        (bytearray(8), True, {}, TypeError),
        (bytearray(8), lambda needless: True, {}, TypeError),
        (bytearray(8), bool, {"timeout": -1}, ValueError),
        (bytearray(8), bool, {"timeout": float("nan")}, ValueError),
        (bytearray(8), bool, {"timeout": "1"}, TypeError),
        (bytearray(8), bool, {"max_nap": -1e-9}, ValueError),
        (bytearray(8), bool, {"max_nap": float("nan")}, ValueError),
        (bytearray(8), bool, {"max_nap": None}, TypeError),
        (bytearray(8), bool, {"max_nap": True}, TypeError),
    ],
)
def test_bad_input_is_refused(buffer: Any, predicate: Any, options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        spinloop(buffer, predicate, **options)
    if isinstance(buffer, bytearray):
        buffer.append(1)  # no view of it is left
        buffer.pop()


# when the predicate is called


def test_naps_double_up_to_the_bound_and_the_predicate_is_called_after_each(naps: list[float]) -> None:
    """It may look at other memory: nothing here changes a byte of the buffer."""
    predicate = Answers(*[False] * 9, True)
    spinloop(bytearray(8), predicate, max_nap=1e-3)
    assert naps == pytest.approx([50e-6, 100e-6, 200e-6, 400e-6, 800e-6, 1e-3, 1e-3, 1e-3])
    assert predicate.calls == 10  # and once before the watch, once after it


def test_no_nap_outlasts_the_bound_or_the_timeout(naps: list[float]) -> None:
    spinloop(bytearray(8), Answers(*[False] * 5, True), max_nap=2e-5)
    assert naps == pytest.approx([2e-5] * 4)
    naps.clear()
    spinloop(bytearray(8), Answers(*[False] * 30, True), max_nap=3600, timeout=100)
    assert max(naps) <= 100


def test_a_change_begins_the_watch_anew(naps: list[float]) -> None:
    buffer = bytearray(8)

    def beside(call: int) -> None:
        if call in (4, 5):
            buffer[7] += 1

    spinloop(buffer, Answers(*[False] * 9, True, beside=beside))
    # After call 1 a watch; 2 and 3: naps. 4 stores, which is seen after its nap; so after 5 a watch, which sees what 5
    # stored; after 6 a watch that sees nothing, and naps from the first on.
    assert naps == pytest.approx([50e-6, 100e-6, 200e-6, 50e-6, 100e-6, 200e-6])


def test_without_naps_it_never_sleeps(naps: list[float]) -> None:
    spinloop(bytearray(8), Answers(*[False] * 20, True), max_nap=0)
    assert not naps


@NAPS
@pytest.mark.parametrize("beside", [False, True], ids=["the buffer", "other memory"])
def test_another_thread_runs_meanwhile(max_nap: float, beside: bool) -> None:
    buffer, other = bytearray(8), bytearray(8)
    setting = threading.Event()

    def store() -> None:
        setting.wait()
        (other if beside else buffer)[5] = 1

    def predicate() -> bool:
        setting.set()
        return bool(buffer[5] or other[5])

    thread = threading.Thread(target=store)
    thread.start()
    assert spinloop(buffer, predicate, max_nap=max_nap)
    thread.join()


def test_two_threads_answer_each_other_byte_by_byte() -> None:
    shared = bytearray(130)  # no two lines of it alike: every third byte is one's, the next the other's
    rounds = range(0, 129, 3)

    def answer() -> None:
        for at in rounds:
            spinloop(memoryview(shared)[at : at + 1], lambda: shared[at])  # noqa: B023 - called at once
            shared[at + 1] = 1

    thread = threading.Thread(target=answer)
    thread.start()
    for at in rounds:
        shared[at] = 1
        spinloop(memoryview(shared)[at + 1 : at + 2], lambda: shared[at + 1], timeout=60)  # noqa: B023 - as above
    thread.join()


def test_a_predicate_may_wait_itself() -> None:
    buffer = bytearray(8)
    inner = Answers(False, False, True)
    assert spinloop(buffer, Answers(False, spinloop(buffer, inner)))
    assert spinloop(buffer, lambda: spinloop(buffer, Answers(False, "nested"))) == "nested"
    buffer.extend(b"released")


@pytest.mark.parametrize(
    "buffer",
    [
        b"x",
        bytearray(4096),
        memoryview(bytearray(99))[3:77],
        (ctypes.c_uint64 * 9)(),
        memoryview(bytearray(24)).cast("B", (2, 3, 4)),
    ],
    ids=lambda buffer: type(buffer).__name__,
)
def test_anything_with_the_buffer_protocol_will_do(buffer: Any) -> None:
    assert spinloop(buffer, Answers(False, True)) is True


# the native watch


RUNGS = [name for name, refusal in _backend.core.rungs() if refusal is None] if _backend.name == "native" else ["none"]


@pytest.fixture
def rung(request: pytest.FixtureRequest) -> Iterator[str]:
    before = _backend.rung()
    _backend.core.choose_rung(request.param)
    yield request.param
    _backend.core.choose_rung(before)


@pytest.mark.native
@pytest.mark.parametrize("rung", RUNGS, indirect=True)
@pytest.mark.parametrize("where", [slice(0, 8), slice(61, 62), slice(61, 70), slice(1, 300)], ids=str)
def test_a_watch_drops_the_gil_and_ends_with_any_byte(rung: str, where: slice) -> None:
    memory = mmap.mmap(-1, 4096)
    with memory, memoryview(memory)[where] as buffer:
        watch = _backend.core.BytesWatch(buffer)
        for at in (0, len(buffer) - 1):
            thread = threading.Thread(target=buffer.__setitem__, args=(at, buffer[at] ^ 1))
            thread.start()
            assert watch.watch(60e6, 0)
            thread.join()
            assert not watch.changed()
        watch.release()


def test_a_watch_that_was_released_says_so() -> None:
    watch = _backend.core.BytesWatch(bytearray(8))
    watch.release()
    watch.release()
    with pytest.raises(ValueError, match="released"):
        watch.changed()
    with pytest.raises(ValueError, match="released"):
        watch.watch(1, 0)


# signals, and the end


@NAPS
def test_a_handler_that_returns_lets_it_go_on(max_nap: float) -> None:
    """Nobody stores, and the only end is what the handler notes: it runs between two calls of the predicate."""
    noted: list[int] = []
    main = threading.main_thread().ident
    assert main is not None
    waiting = threading.Event()

    def interrupt() -> None:
        waiting.wait()
        signal.pthread_kill(main, signal.SIGUSR1)

    def predicate() -> list[int]:
        waiting.set()
        return noted

    thread = threading.Thread(target=interrupt)
    before = signal.signal(signal.SIGUSR1, lambda number, frame: noted.append(number))
    try:
        thread.start()
        assert spinloop(bytearray(8), predicate, max_nap=max_nap) == [signal.SIGUSR1]
    finally:
        thread.join()
        signal.signal(signal.SIGUSR1, before)


INTERRUPTED = """
    from aiospin.lowlevel import spinloop
    buffer = bytearray(8)
    calls = 0

    def predicate():
        global calls
        calls += 1
        if calls == 3:
            say("waiting")
        return False

    try:
        spinloop(buffer, predicate, max_nap=arguments)
    except KeyboardInterrupt:
        buffer.extend(b"released")
        say("interrupted")
"""


@NAPS
def test_ctrl_c_ends_it(max_nap: float) -> None:
    with Program(INTERRUPTED, max_nap) as child:
        assert child.hear() == "waiting"
        child.signal(signal.SIGINT)
        assert child.hear() == "interrupted"
        child.finish()


LEFT_BEHIND = """
    import threading
    from aiospin import lowlevel
    called = threading.Event()

    def predicate():
        called.set()
        return False

    def words():
        while True:
            try:
                lowlevel.wait_word(bytes(8), "==", 1, timeout=1e-5)
            except TimeoutError:
                pass

    def spin():
        lowlevel.spinloop(bytes(8), predicate, max_nap=arguments)

    threading.Thread(target=spin, daemon=True).start()
    threading.Thread(target=words, daemon=True).start()
    called.wait()
"""


@NAPS
def test_the_interpreter_ends_under_a_daemon_threads_wait(max_nap: float) -> None:
    for _ in range(5):
        with Program(LEFT_BEHIND, max_nap) as child:
            child.finish()
