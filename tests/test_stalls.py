"""A wait that has become long tells its story: who, where, how long, and how the other side stands. Never payload."""

from __future__ import annotations

import ast
import asyncio
import gc
import importlib.abc
import importlib.util
import logging
import os
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ends import LARGEST, RING, ends, until
from programs import Program

import aiospin
from aiospin import _backend, _host
from aiospin._stall import Stall

READS = "reader = aiospin.attach(arguments); reader.__enter__(); say(); hear(); reader.close()"
WRITES = "writer = aiospin.attach(arguments); writer.__enter__(); say(); hear(); writer.close()"
LEVELS = {"debug", "info", "warning", "error", "exception", "critical", "log"}


def stories(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """The fields of each line, after checking that the text says the same."""
    told = []
    for record in caplog.records:
        assert record.name == "aiospin"
        assert record.levelno == logging.WARNING
        fields: dict[str, Any] = record.aiospin  # type: ignore[attr-defined]
        text = " ".join(f"{name}={value}".replace(" ", "_") for name, value in fields.items())
        assert record.getMessage() == f"stalled: {text}"
        told.append(fields)
    caplog.clear()
    return told


def test_a_reader_says_who_and_where_it_is(caplog: pytest.LogCaptureFixture) -> None:
    with ends(readers=2) as (queue, writer, (first, second)):
        for end in (writer, first, second):
            end.__enter__()
        for _ in range(3):
            writer.put(bytes(100))
        assert len(second.get_many(3)) == 3
        second._recheck(12.34)
        [story] = stories(caplog)
        published = queue.statistics().published
        assert story == {
            "role": "reader",
            "rank": 1,
            "pid": os.getpid(),
            "queue": first.handle.segment.short,
            "slot": 3,
            "cursor": published,
            "published": published,
            "held": 0,
            "views": 0,
            "writer": "alive",
            "writer_pid": os.getpid(),
            "waited_s": 12.3,
        }
        assert story["queue"] in repr(queue)


def test_a_reader_that_has_read_nothing_does_not_guess_the_slot(caplog: pytest.LogCaptureFixture) -> None:
    with ends() as (_, _, (reader,)):
        reader.__enter__()
        reader._recheck(10.0)
        [story] = stories(caplog)
        assert (story["slot"], story["writer"]) == (-1, "never attached")
        assert "writer_pid" not in story


def test_a_writer_names_each_reader_its_lag_and_what_it_holds(caplog: pytest.LogCaptureFixture) -> None:
    with ends(readers=3) as (_, writer, (first, second, _)):
        for end in (writer, first, second):
            end.__enter__()
        writer.put(bytes(RING // 2 - 64))
        writer.put(bytes(1000))
        slot = first.try_acquire_read()
        assert slot is not None
        second.get_many(2)
        writer._recheck(20.0)
        slot.release()
        [story] = stories(caplog)
        assert (story["role"], story["rank"], story["slot"]) == ("writer", "-", 2)
        assert (story["reader_0"], story["reader_1"], story["reader_2"]) == ("alive", "alive", "never attached")
        assert story["lag_0"] == story["published"]
        assert story["taken_0"] == RING // 2
        assert "lag_1" not in story
        assert story["lag_2"] == story["published"]
        assert "taken_2" not in story


def test_views_that_are_held_are_counted_apart(caplog: pytest.LogCaptureFixture) -> None:
    with ends() as (queue, writer, (reader,)):
        for _ in range(3):
            writer.put(b"seen")
        slot = reader.try_acquire_read()
        with reader.acquire_read() as left:
            view = left.data
        with reader.acquire_read() as looked_at:
            bytes(looked_at.data)
        assert slot is not None
        reader._recheck(10.0)
        [story] = stories(caplog)
        assert (story["held"], story["views"]) == (2, 1)
        assert (queue.statistics().leases, queue.statistics().views) == (2, 1)
        del view
        slot.release()
        assert (queue.statistics().leases, queue.statistics().views) == (0, 0)


@pytest.mark.parametrize("program", [READS, WRITES])
def test_a_living_a_stopped_and_a_dead_peer_are_told_apart(program: str, caplog: pytest.LogCaptureFixture) -> None:
    with ends(on_peer_death="wait") as (_, writer, (reader,)):
        own, other = (writer, reader) if program == READS else (reader, writer)
        name = "reader_0" if program == READS else "writer"
        own.__enter__()
        with Program(program, str(other.handle)) as child:
            child.hear()
            own._recheck(10.0)
            child.signal(signal.SIGSTOP)
            until(lambda: _host.is_stopped(child.pid))
            own._recheck(20.0)
            child.signal(signal.SIGCONT)
            until(lambda: not _host.is_stopped(child.pid))
            own._recheck(40.0)
            pid = child.pid
            child.kill()
            own._recheck(80.0)
            told = stories(caplog)
        assert [story[name] for story in told] == ["alive", "stopped", "alive", "dead"]
        assert {story[f"{name}_pid"] for story in told} == {pid}


def test_a_peer_that_left_is_told_from_one_that_keeps_its_place(caplog: pytest.LogCaptureFixture) -> None:
    with ends(readers=2) as (_, writer, (first, second)):
        for end in (writer, first, second):
            end.__enter__()
        first.close()
        second.detach()
        writer._recheck(10.0)
        [story] = stories(caplog)
        assert (story["reader_0"], story["reader_1"]) == ("closed", "detached")


def test_a_wait_tells_again_at_doubling_intervals() -> None:
    stall = Stall(10.0)
    assert [second for second in range(200) if stall.due(float(second))] == [10, 20, 40, 80, 160]
    assert not stall.due(0.5)  # the next wait
    assert [second for second in range(30) if stall.due(float(second))] == [10, 20]


def test_a_wait_in_a_thread_tells_by_itself(caplog: pytest.LogCaptureFixture) -> None:
    with ends(stall_after=0.3) as (_, writer, (reader,)):
        got: list[bytes] = []
        thread = threading.Thread(target=lambda: got.append(reader.get()))
        thread.start()
        until(lambda: caplog.records)
        writer.put(b"there")
        thread.join()
        assert got == [b"there"]
        [story, *_] = stories(caplog)
        assert story["role"] == "reader"
        assert story["waited_s"] >= 0.3


def test_an_awaited_call_tells_by_itself(run_async: Callable[..., Any], caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        with ends(stall_after=0.3) as (_, writer, _):
            writer.put(bytes(LARGEST))
            waiting = asyncio.ensure_future(writer.aput(b"more"))
            while not caplog.records:
                await asyncio.sleep(0.01)
            waiting.cancel()
            await asyncio.wait([waiting])

    run_async(main())
    [story, *_] = stories(caplog)
    assert (story["role"], story["reader_0"], story["lag_0"]) == ("writer", "never attached", LARGEST + 64)


@pytest.mark.parametrize("policy", ["eco", "balanced"])
def test_an_awaited_call_tells_how_long_it_has_waited_and_not_since_when_it_is_looked_at(
    policy: str, run_async: Callable[..., Any]
) -> None:
    async def main() -> None:
        with ends(policy=policy) as (_, writer, (reader,)):
            for _ in range(3):  # from the second on the backend may park by itself
                waiting = asyncio.ensure_future(reader.aget())
                await asyncio.sleep(0.01)
                writer.put(b"there")
                await waiting
            waiting = asyncio.ensure_future(reader.aget())
            await asyncio.sleep(0)
            slept = time.monotonic()
            await asyncio.sleep(0.2)
            slept = time.monotonic() - slept
            # The first look, which comes once a second, and would be the second one's beginning.
            assert reader._stall.waited(reader._cursor, reader._parked_ns) >= slept
            waiting.cancel()
            await asyncio.wait([waiting])

    run_async(main())


def test_the_next_in_line_waits_from_its_own_turn_on(
    run_async: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        with ends(stall_after=1e-9) as (_, writer, (reader,)):
            writer.put(bytes(LARGEST))
            waiting = [asyncio.ensure_future(writer.aput(bytes(LARGEST))) for _ in range(2)]
            while writer._queued != 2:
                await asyncio.sleep(0)
            reader.get()
            await waiting[0]
            assert writer._stall._began is not None
            writer._look_after()
            [story, *_] = stories(caplog)
            assert story["role"] == "writer"
            reader.get()
            await waiting[1]
            assert writer._stall._began is None

    run_async(main())


def test_a_wait_set_tells_one_line_for_all_its_members(caplog: pytest.LogCaptureFixture) -> None:
    with ends(stall_after=0.3) as (_, writer, (reader,)), ends(stall_after=0.2) as (_, _, (orphan,)):
        writer.__enter__()
        with aiospin.WaitSet([reader, orphan]) as waits:
            ready: list[Any] = []
            thread = threading.Thread(target=lambda: ready.extend(waits.wait_sync()))
            thread.start()
            until(lambda: caplog.records)
            writer.put(b"there")
            thread.join()
            assert ready == [reader]
        [story, *_] = stories(caplog)
        assert (story["role"], story["members"], story["alive"], story["never attached"]) == ("wait_set", 2, 1, 1)
        assert story["member_0"].endswith(":writer=never attached")
        assert story["member_0"].startswith("reader 0 of ")


def test_a_wait_set_in_a_loop_tells_too(run_async: Callable[..., Any], caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        with ends(stall_after=0.2) as (_, _, (reader,)), aiospin.WaitSet([reader]) as waits:
            waiting = asyncio.ensure_future(waits.wait())
            while not caplog.records:
                await asyncio.sleep(0.01)
            waiting.cancel()
            await asyncio.wait([waiting])

    run_async(main())
    [story, *_] = stories(caplog)
    assert (story["role"], story["members"], story["never attached"]) == ("wait_set", 1, 1)


def test_payload_never_appears_in_logs(caplog: pytest.LogCaptureFixture) -> None:
    secret = b"the-payload-is-nobodys-business"
    caplog.set_level(logging.DEBUG)
    with ends(readers=2, checksum=True) as (_, writer, (first, second)):
        for end in (writer, first, second):
            end.__enter__()
        writer.put(secret)
        slot = first.try_acquire_read()
        for end in (writer, first, second):
            end._recheck(10.0)
        assert slot is not None
        assert secret.decode() not in repr(slot)
        slot.release()
    assert caplog.records
    for record in caplog.records:
        assert secret.decode() not in repr(record.__dict__)


def test_what_is_logged_keeps_no_live_object(caplog: pytest.LogCaptureFixture) -> None:
    with ends() as (_, writer, (reader,)):
        reader.__enter__()
        writer.__enter__()
        reader._recheck(10.0)
        watched = [weakref.ref(reader), weakref.ref(writer), weakref.ref(reader._segment)]
    records = list(caplog.records)
    assert records
    plain = (str, int, float, type(None), bool)
    for record in records:
        assert all(isinstance(value, plain) for value in record.aiospin.values())  # type: ignore[attr-defined]
        assert not record.args
        assert record.exc_info is None
    del reader, writer
    gc.collect()
    assert [ref() for ref in watched] == [None, None, None]


class Unusable(importlib.abc.MetaPathFinder):
    """Finds an extension that cannot be loaded, and says so with an exception that holds on to things."""

    def __init__(self, error: ImportError) -> None:
        self._error = error

    def find_spec(self, name: str, path: object, target: object = None) -> None:
        if name == "aiospin._native":
            raise self._error


def test_the_warning_about_the_fallback_keeps_no_exception(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Model:
        """What a frame may hold when an import fails in it."""

    def fail() -> weakref.ref[Model]:
        error = ImportError("no such library")
        error.model = model = Model()  # type: ignore[attr-defined]
        with monkeypatch.context() as patch:
            for flag in ("AIOSPIN_NO_EXTENSIONS", "AIOSPIN_REQUIRE_EXTENSIONS"):
                patch.delenv(flag, raising=False)
            patch.delitem(sys.modules, "aiospin._native", raising=False)
            patch.delattr(aiospin, "_native", raising=False)
            patch.setattr(sys, "meta_path", [Unusable(error), *sys.meta_path])
            again = importlib.util.spec_from_file_location("chosen_again", _backend.__file__)
            assert again is not None
            assert again.loader is not None
            chosen = importlib.util.module_from_spec(again)
            again.loader.exec_module(chosen)
            assert chosen.name == "fallback"
        return weakref.ref(model)

    model = fail()
    gc.collect()
    assert model() is None
    [record] = caplog.records
    assert "ImportError: no such library" in record.getMessage()
    assert not record.args
    assert record.exc_info is None


def test_every_message_is_formatted_where_it_is_logged() -> None:
    """A record with arguments, or an exception, would keep them for as long as some handler keeps the record."""
    calls = 0
    for path in Path(aiospin.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            logger = ast.unparse(node.func.value)
            if node.func.attr in LEVELS and (logger.endswith("_log") or "getLogger" in logger):
                calls += 1
                assert len(node.args) == 1, f"{path}:{node.lineno}"
                assert {keyword.arg for keyword in node.keywords} <= {"extra"}, f"{path}:{node.lineno}"
    assert calls >= 3
