"""What aiospin leaves alone in the process that uses it: signals, loops, sockets, pickles, and libraries to load."""

from __future__ import annotations

import asyncio
import os
import pickle
import re
import signal
import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from ends import epoch, pair
from programs import Program

import aiospin

pytestmark = pytest.mark.usefixtures("leaves_nothing")

ROOT = Path(__file__).resolve().parent.parent


def test_sigterm_is_the_loops_while_a_call_is_awaited(run_async: Callable[[Any], Any]) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        with pair(policy="eco") as (writer, reader):
            writer.__enter__()
            loop.add_signal_handler(signal.SIGTERM, writer.put, b"from the handler")
            try:
                waiting = asyncio.ensure_future(reader.aget())
                while not epoch(reader):
                    await asyncio.sleep(0)
                os.kill(os.getpid(), signal.SIGTERM)
                assert await asyncio.wait_for(waiting, 60) == b"from the handler"
            finally:
                assert loop.remove_signal_handler(signal.SIGTERM)

    run_async(main())


def eventfds() -> int:
    links = (os.readlink(entry) for entry in map(str, Path("/proc/self/fd").iterdir()) if os.path.lexists(entry))
    return sum("eventfd" in link for link in links)


def test_a_loop_has_one_descriptor_of_ours_to_be_woken_by(run_async: Callable[[Any], Any]) -> None:
    """However many ends it awaits; a second loop has its own."""

    async def main(ends: list[tuple[Any, Any]]) -> int:
        for _ in range(5):  # watched by the waiter thread, where there is one
            waiting = [asyncio.ensure_future(reader.aget()) for _, reader in ends]
            await asyncio.sleep(0)
            for writer, _ in ends:
                writer.put(b"x")
            await asyncio.gather(*waiting)
        return eventfds()

    async def nothing() -> int:
        return eventfds()

    with ExitStack() as stack:
        ends = [stack.enter_context(pair(policy="pinned")) for _ in range(8)]
        bare = run_async(nothing())
        for _ in range(2):
            assert run_async(main(ends)) - bare == (1 if aiospin.backend == "native" else 0)


# ---- security


class Bomb:
    """Unpickled, it would run what it says."""

    def __reduce__(self) -> Any:
        return exec, ("raise SystemExit",)


WATCHED = """
    seen = []
    def watch(event, arguments):
        if event.startswith(("socket.", "pickle.")):
            seen.append(event)
    handle, bomb = arguments
    bomb = bytes.fromhex(bomb)
    sys.addaudithook(watch)
    reader = aiospin.attach(handle)
    assert reader.get() == bomb
    with reader.acquire_read() as slot:
        assert bytes(slot.data) == bomb
    reader.close()
    for codec in ("bytes", "msgpack"):
        with aiospin.Queue(readers=2, codec=codec) as queue, queue.writer() as writer:
            writer.put(bomb)
            for end in (queue.reader(0), aiospin.attach(str(queue.reader(1).handle))):
                assert end.get() == bomb
                end.close()
    say(seen)
"""


def test_bytes_from_a_peer_are_never_executed_and_no_socket_is_opened() -> None:
    with pair() as (writer, reader):
        bomb = pickle.dumps(Bomb())
        writer.put_many([bomb, bomb])
        with Program(WATCHED, [str(reader.handle), bomb.hex()]) as child:
            assert child.hear() == []
            child.finish()


def test_pickle_is_used_where_it_was_asked_for_by_name() -> None:
    with pair() as (writer, _), pair(codec="msgpack") as (packing, _):
        for refusing in (writer, packing):
            with pytest.raises(TypeError):
                refusing.put(Bomb())
    with pair(codec="pickle") as (writer, reader):
        writer.put({1: "one"})
        assert reader.get() == {1: "one"}


# ---- the extension


@pytest.mark.native
def test_the_extension_needs_nothing_but_the_languages_own_libraries() -> None:
    from aiospin import _native

    listed = subprocess.run(["readelf", "-d", _native.__file__], capture_output=True, text=True, check=True).stdout
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", listed)
    assert "libc.so.6" in needed
    allowed = r"libc\.so\.6|libstdc\+\+\.so\.6|libgcc_s\.so\.1|libm\.so\.6|libpthread\.so\.0|ld-linux-.*\.so\..*"
    assert not [library for library in needed if not re.fullmatch(allowed, library)]


def test_the_extension_says_that_it_does_without_the_gil() -> None:
    """Else a free-threaded interpreter takes its lock back when the extension is imported."""
    module = (ROOT / "native/bindings/module.cpp").read_text(encoding="utf-8")
    [declared] = re.findall(r"^PYBIND11_MODULE\((.*)\) \{$", module, re.MULTILINE)
    assert "py::mod_gil_not_used()" in declared
