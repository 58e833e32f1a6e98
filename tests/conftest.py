"""What every test gets: both event loops, the backend's name, a check for leaks, and a gate on skipped tests.

* `async def` tests run once on asyncio and once on uvloop, without asking.
* `loop_kind` and `run_async` do the same for plain tests that drive loops themselves.
* `@pytest.mark.native` and `@pytest.mark.fallback` tie a test to one backend; `repository` says that none matters.
* `leaves_nothing` fails a test that leaves descriptors, threads, child processes or named segments behind.

Guarantee: a skip whose reason is not in ALLOWED_SKIPS fails the run, here and in CI; so does an expected failure.
Assumption: the tests have no `__init__.py`, so each file's folder is on `sys.path` and its basename is unique.
"""

from __future__ import annotations

import asyncio
import gc
import importlib.metadata
import os
import platform
import re
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass
from multiprocessing import resource_tracker
from typing import Any, TypeVar

import pytest
import uvloop

import aiospin

T = TypeVar("T")
LoopFactory = Callable[[], asyncio.AbstractEventLoop]

LOOPS: Mapping[str, LoopFactory] = {"asyncio": asyncio.SelectorEventLoop, "uvloop": uvloop.new_event_loop}

NEEDS_NATIVE = "needs the native backend"
NEEDS_FALLBACK = "needs the pure-Python backend"

# Every reason for which a test may be skipped (a regular expression for the whole reason), and why that loses nothing.
ALLOWED_SKIPS: dict[str, str] = {
    re.escape(NEEDS_NATIVE): "the suite also runs on the native backend, where the test is executed",
    re.escape(NEEDS_FALLBACK): "the suite also runs on the pure-Python backend, where the test is executed",
    "needs PID namespaces, which this system refuses": "it is executed where root may make them, as in most containers",
    "needs x86-64": "its rungs, and what is said of them, exist there alone",
    r"needs Python 3\.1[1-9]": "the suite also runs on newer Pythons, where the test is executed",
}
# What the model server of the examples needs. Where all of it is known to be there, as on one Python in CI, nothing may
# be skipped for want of it.
if not os.environ.get("AIOSPIN_REQUIRE_BROWSER"):
    ALLOWED_SKIPS |= {
        r"needs the extra \[example\]": "it is executed where that is installed: `pip install '.[test,example]'`",
        "needs the chromium package and playwright": "it is executed where a browser is installed",
    }
# Likewise for what carries tensors.
if not os.environ.get("AIOSPIN_REQUIRE_TORCH"):
    ALLOWED_SKIPS["needs torch"] = "it is executed where torch is installed: `.ci/vllm` does so"

_unexplained: list[str] = []
_place = ""  # where this run's named segments are


def pytest_report_header() -> list[str]:
    """Say what is being tested, so that a log cannot be taken for another backend's."""
    return [
        f"aiospin: {aiospin.backend} backend, from {os.path.dirname(aiospin.__file__)}",
        f"aiospin: {platform.python_implementation()} {platform.python_version()}, "
        f"uvloop {importlib.metadata.version('uvloop')}, {len(os.sched_getaffinity(0))} CPUs",
    ]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what the other backend's run executes."""
    native = aiospin.backend == "native"
    for item in items:
        if not native and item.get_closest_marker("native"):
            item.add_marker(pytest.mark.skip(reason=NEEDS_NATIVE))
        if native and item.get_closest_marker("fallback"):
            item.add_marker(pytest.mark.skip(reason=NEEDS_FALLBACK))


def pytest_configure(config: pytest.Config) -> None:
    """Let Ctrl-C through, and give this run's named segments a place of their own: others may run beside it."""
    # What a shell starts in the background ignores it, and every child of the tests would, too.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # Processes that are spawned import the main program again. That would be pytest, and none of them needs it.
    vars(sys.modules["__main__"]).pop("__file__", None)
    global _place
    place = tempfile.TemporaryDirectory(prefix="tests-", dir="/dev/shm")
    config.add_cleanup(place.cleanup)
    _place = os.environ["AIOSPIN_DIR"] = place.name


def pytest_collection_finish() -> None:
    """Let the collections after each test look at what that test made, and not at pytest again and again."""
    gc.collect()
    gc.freeze()


def _judge(report: pytest.TestReport | pytest.CollectReport) -> None:
    if not report.skipped:
        return
    longrepr = report.longrepr
    reason = longrepr[2] if isinstance(longrepr, tuple) else str(longrepr)
    reason = reason.removeprefix("Skipped: ")
    expected_failure = hasattr(report, "wasxfail")
    if expected_failure or not any(re.fullmatch(allowed, reason) for allowed in ALLOWED_SKIPS):
        _unexplained.append(f"{report.nodeid}: {'expected to fail' if expected_failure else reason}")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _judge(report)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    _judge(report)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if _unexplained:
        terminalreporter.section("skips that no reason in tests/conftest.py explains", red=True)
        for line in _unexplained:
            terminalreporter.write_line(line)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if _unexplained and exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, LoopFactory]:
    """Run each `async def` test once per loop. `@pytest.mark.asyncio(loop_factories=["uvloop"])` narrows it.

    What stands on the public calls alone and starts processes is played on one loop by each backend.
    """
    if "workers" in item.path.parts:
        name = "uvloop" if aiospin.backend == "native" else "asyncio"
        return {name: LOOPS[name]}
    return LOOPS


@pytest.fixture(scope="session", autouse=True)
def away_from_the_source_tree(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Run where a child process imports what is installed, and not the sources beside pyproject.toml."""
    before = os.getcwd()
    os.chdir(tmp_path_factory.mktemp("elsewhere"))
    yield
    os.chdir(before)


@pytest.fixture(params=sorted(LOOPS))
def loop_kind(request: pytest.FixtureRequest) -> str:
    """Run a plain test once per kind of loop: the name, "asyncio" or "uvloop"."""
    kind: str = request.param
    return kind


@pytest.fixture
def new_loop(loop_kind: str) -> LoopFactory:
    """Make loops of this test's kind; the test closes them."""
    return LOOPS[loop_kind]


@pytest.fixture
def run_async(new_loop: LoopFactory) -> Callable[[Coroutine[Any, Any, T]], T]:
    """Run one coroutine on a fresh loop of this test's kind, in the calling thread, and close the loop."""

    def run(coroutine: Coroutine[Any, Any, T]) -> T:
        loop = new_loop()
        try:
            return loop.run_until_complete(coroutine)
        finally:
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()

    return run


@dataclass(frozen=True)
class Footprint:
    """What this process holds that a test could leave behind."""

    descriptors: frozenset[tuple[int, str]]
    threads: frozenset[threading.Thread]
    children: frozenset[int]
    named: frozenset[str]

    @classmethod
    def take(cls) -> Footprint:
        """Look at /proc and at this run's directory of named segments now."""
        descriptors = set()
        for entry in os.listdir("/proc/self/fd"):
            try:
                descriptors.add((int(entry), os.readlink(f"/proc/self/fd/{entry}")))
            except FileNotFoundError:  # the listing's own descriptor
                continue
        children: set[int] = set()
        for task in os.listdir("/proc/self/task"):
            try:
                with open(f"/proc/self/task/{task}/children", encoding="ascii") as listing:
                    children.update(map(int, listing.read().split()))
            except FileNotFoundError:  # the thread has ended
                continue
        named = os.listdir(_place)
        return cls(frozenset(descriptors), frozenset(threading.enumerate()), frozenset(children), frozenset(named))

    def since(self, before: Footprint) -> list[str]:
        """Say what is here that was not there before."""
        return [
            *(f"descriptor {number} -> {target}" for number, target in self.descriptors - before.descriptors),
            *(f"thread {thread.name}" for thread in self.threads - before.threads),
            *(f"child process {pid}" for pid in self.children - before.children),
            *(f"named segment {name}" for name in self.named - before.named),
        ]


def leaked(before: Footprint, patience: float = 10.0) -> list[str]:
    """Return what is left since `before`, giving what is on its way out `patience` seconds to go."""
    deadline = time.monotonic() + patience
    while left := Footprint.take().since(before):
        if time.monotonic() > deadline:
            break
        gc.collect()  # only now: in a session of thousands of tests it takes longer than most of them
        time.sleep(0.001)
    return left


@pytest.fixture
def leaves_nothing() -> Iterator[Footprint]:
    """Fail the test if anything is left of it a while after its end."""
    resource_tracker.ensure_running()  # multiprocessing's own, which stays
    uvloop.new_event_loop().close()  # so does the signal pipe that libuv makes with its first loop
    before = Footprint.take()
    yield before
    left = leaked(before)
    assert not left, f"left behind: {', '.join(left)}"
