"""Exceptions of methods arrive as what they were, as far as this process knows them, and whatever they are, a call ends
with one and its worker lives on."""

from __future__ import annotations

import re
import sys
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
import pytest_asyncio
from faulty import CULPRITS, BrokenArgs, BrokenText, Faulty, FaultyLooped, OwnInit
from hosted import KnownError
from stage import settle

import aiospin
from aiospin.workers import RemoteError, RemoteTraceback, WorkerGroup

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def faulty_groups() -> AsyncIterator[Mapping[str, WorkerGroup[Any]]]:
    async with WorkerGroup(Faulty, 1) as plain, WorkerGroup(FaultyLooped, 1) as looped:
        yield {"sync": plain, "async": looped}


@pytest_asyncio.fixture(loop_scope="module")
async def faulty(faulty_groups: Mapping[str, WorkerGroup[Any]], kind: str) -> AsyncIterator[WorkerGroup[Any]]:
    """Of each kind by turns; its worker has survived the test, and no call is left."""
    group = faulty_groups[kind]
    before = group.pids
    yield group
    for _ in range(3):
        assert await group.call_one(0, "add", 1) == 1
    assert group.pids == before
    assert group.statistics().pending == 0


async def caught(group: WorkerGroup[Any], culprit: str) -> Any:
    """What arrives, by each way of calling alike."""
    found = []
    for awaited in (group.call_one(0, "raise_", culprit), group.call("raise_", culprit)):
        with pytest.raises(Exception) as one:
            await awaited
        found.append(one.value)
    with pytest.raises(Exception) as of_stream:
        async for part in group.stream(0, "after", 2, culprit):
            assert part in (0, 1)
    found.append(of_stream.value)
    error = found[0]
    if culprit not in ("stop", "async stop", "generator exit", "objects as args"):
        # Of the first three Python makes others in generators, and in the last one an object's address is told.
        assert {(type(each), str(each)) for each in found} == {(type(error), str(error))}
    for each in found:
        assert isinstance(each.__cause__, RemoteTraceback)
    return error


async def test_a_known_type_arrives_as_itself(faulty: WorkerGroup[Any]) -> None:
    error = await caught(faulty, "known")
    assert type(error) is KnownError
    assert error.args == ("known here",)


async def test_the_cause_is_the_traceback_in_the_worker(faulty: WorkerGroup[Any]) -> None:
    error = await caught(faulty, "known")
    assert "in raise_" in str(error.__cause__)
    assert "faulty.py" in error.__cause__.text
    assert re.search(r"KnownError: known here", error.__cause__.text)


async def test_the_causes_of_an_exception_are_told(faulty: WorkerGroup[Any]) -> None:
    error = await caught(faulty, "chained")
    assert type(error) is KnownError
    assert "ValueError: inner" in str(error.__cause__)


async def test_built_in_exceptions_arrive_as_themselves(faulty: WorkerGroup[Any]) -> None:
    error = await caught(faulty, "builtin")
    assert type(error) is KeyError
    assert error.args == ("key", 5)


async def test_an_exception_keeps_its_attributes_and_is_not_constructed_here(faulty: WorkerGroup[Any]) -> None:
    before = OwnInit.made
    error = await caught(faulty, "own init")
    assert type(error) is OwnInit
    assert (error.code, error.why, str(error)) == (7, "so", "code 7: so")
    assert OwnInit.made == before
    assert await faulty.call_one(0, "made") > 0


@pytest.mark.parametrize(
    ("culprit", "text"),
    [
        ("opening", "[Errno 2] No such file or directory: '/nowhere/at/all'"),
        ("decoding", "'utf-8' codec can't decode byte 0xff in position 0: invalid start byte"),
    ],
)
async def test_built_in_exceptions_keep_their_text(faulty: WorkerGroup[Any], culprit: str, text: str) -> None:
    error = await caught(faulty, culprit)
    assert type(error) is type(CULPRITS[culprit]())
    assert str(error) == text


async def test_what_built_in_exceptions_hold_beside_their_arguments_arrives(faulty: WorkerGroup[Any]) -> None:
    opening = await caught(faulty, "opening")
    assert (opening.errno, opening.filename) == (2, "/nowhere/at/all")
    decoding = await caught(faulty, "decoding")
    assert (decoding.object, decoding.start, decoding.end) == (b"\xff", 0, 1)


@pytest.mark.parametrize(
    ("culprit", "type_name", "text"),
    [
        ("unknown", "only_there.OnlyThere", "not known here"),
        ("local", "faulty._local.<locals>.Local", "of a function"),
        ("own new", "faulty.OwnNew", "of 1 and 2"),
        ("odd base", "faulty.OddBase", "x"),
        ("cancelled", "asyncio.exceptions.CancelledError", "by itself"),
    ],
)
async def test_what_cannot_be_made_here_is_a_remote_error(
    faulty: WorkerGroup[Any], culprit: str, type_name: str, text: str
) -> None:
    error = await caught(faulty, culprit)
    assert type(error) is RemoteError
    assert isinstance(error, aiospin.AiospinError)
    assert (error.type_name, error.text, str(error)) == (type_name, text, f"{type_name}: {text}")


async def test_an_argument_that_does_not_travel_arrives_as_its_text(faulty: WorkerGroup[Any]) -> None:
    error = await caught(faulty, "objects as args")
    assert type(error) is KnownError
    assert error.args[0].startswith("<object object at")
    assert error.args[1:] == ([1], b"bytes", None, 1.5, 3)


async def test_numbers_and_text_of_every_kind_travel(faulty: WorkerGroup[Any]) -> None:
    assert (await caught(faulty, "infinity")).args == (float("inf"), 2**70)
    assert (await caught(faulty, "surrogate")).args == ("\ud800 lone",)
    assert (await caught(faulty, "long")).args == ("x" * 1_000_000,)


@pytest.mark.parametrize("culprit", ["broken text", "unprintable arg", "huge int", "broken args"])
async def test_an_exception_without_a_text_is_told_all_the_same(faulty: WorkerGroup[Any], culprit: str) -> None:
    with pytest.raises(Exception) as raised:
        await faulty.call_one(0, "raise_", culprit)
    assert type(raised.value) in (KnownError, BrokenText, BrokenArgs, RemoteError)
    assert isinstance(raised.value.__cause__, RemoteTraceback)
    assert type(CULPRITS[culprit]()).__name__ in raised.value.__cause__.text


@pytest.mark.parametrize("culprit", ["stop", "async stop", "generator exit"])
async def test_what_ends_iterations_does_not_end_them_here(faulty: WorkerGroup[Any], culprit: str) -> None:
    """Nor can a future hold a StopIteration. A generator that raises one has RuntimeError made of it by Python."""
    error = await caught(faulty, culprit)
    assert type(error) in (RemoteError, RuntimeError)
    assert type(CULPRITS[culprit]()).__name__ in str(error)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="needs Python 3.11")
async def test_a_group_of_exceptions_is_told_with_all_that_it_holds(faulty: WorkerGroup[Any]) -> None:
    error = await caught(faulty, "group")
    assert "some" in str(error)
    assert "ValueError: one" in error.__cause__.text
    assert "KnownError: two" in error.__cause__.text


@pytest.mark.parametrize("culprit", sorted(set(CULPRITS) - {"system exit", "group"}))
async def test_no_exception_costs_a_worker(faulty: WorkerGroup[Any], culprit: str) -> None:
    """The fixture sees that it is the same one afterwards."""
    with pytest.raises(Exception):  # noqa: B017 - whichever
        await faulty.call_one(0, "raise_", culprit)


async def test_an_exit_ends_the_worker_and_its_call_says_so(kind: str) -> None:
    hosts: Mapping[str, Any] = {"sync": Faulty, "async": FaultyLooped}
    restart = aiospin.workers.Restart(first=0)
    async with WorkerGroup(hosts[kind], 1, restart=restart) as group:
        before = group.pids[0]
        with pytest.raises(aiospin.workers.WorkerDied, match=rf"{before}.*exit code 3 while it had raise_\(\)"):
            await group.call_one(0, "raise_", "system exit")
        assert await group.call_one(0, "add", 2, two=3) == 5
        assert group.pids[0] != before
        await settle(group)


async def test_an_unknown_method_is_named(faulty: WorkerGroup[Any]) -> None:
    with pytest.raises(AttributeError, match="no_such_method"):
        await faulty.call_one(0, "no_such_method")
    with pytest.raises(AttributeError, match="no_such_method"):
        await faulty.call("no_such_method")
    with pytest.raises(AttributeError, match="no_such_method"):
        await faulty.stream(0, "no_such_method").__anext__()


@pytest.mark.parametrize("name", ["_private", "__init__", "a b", "", "1st", "a.b", "x" * 70000])
async def test_what_is_no_name_of_a_public_method_is_refused_at_once(faulty: WorkerGroup[Any], name: str) -> None:
    for awaited in (faulty.call_one(0, name), faulty.call(name), faulty.stream(0, name).__anext__()):
        with pytest.raises(AttributeError, match="is not the name of a public method") as raised:
            await awaited
        assert raised.value.__cause__ is None
        assert len(str(raised.value)) < 1000


@pytest.mark.parametrize("method", [None, 5, object(), b"add"])
async def test_what_is_no_method_is_refused_at_once(faulty: WorkerGroup[Any], method: Any) -> None:
    for awaited in (faulty.call_one(0, method), faulty.call(method), faulty.stream(0, method).__anext__()):
        with pytest.raises(TypeError, match=re.escape(repr(method))):
            await awaited


async def test_what_is_not_callable_is_an_error_of_the_call(faulty: WorkerGroup[Any]) -> None:
    with pytest.raises(TypeError, match="not callable"):
        await faulty.call_one(0, "attribute")


async def test_wrong_arguments_are_an_error_of_the_call(faulty: WorkerGroup[Any]) -> None:
    with pytest.raises(TypeError, match=r"add\(\) missing 1 required positional argument"):
        await faulty.call_one(0, "add")
    with pytest.raises(TypeError, match=r"add\(\) got an unexpected keyword argument 'three'"):
        await faulty.call("add", 1, three=3)


@pytest.mark.parametrize("bad", [object(), {"deep": [object()]}, 2**70, float, {object()}])
async def test_arguments_that_do_not_travel_are_refused_at_once(faulty: WorkerGroup[Any], bad: Any) -> None:
    for awaited in (
        faulty.call_one(0, "add", bad),
        faulty.call("add", 1, two=bad),
        faulty.stream(0, "after", bad, "known").__anext__(),
    ):
        with pytest.raises((TypeError, OverflowError)) as raised:
            await awaited
        assert raised.value.__cause__ is None or not isinstance(raised.value.__cause__, RemoteTraceback)
    assert faulty.statistics().pending == 0


async def test_the_error_names_the_type_that_does_not_travel(faulty: WorkerGroup[Any]) -> None:
    with pytest.raises(TypeError, match=r"hosted\.KnownError is no plain object; a group with codec='pickle'"):
        await faulty.call_one(0, "add", KnownError())
    with pytest.raises(TypeError, match=r"builtins\.object is no plain object; a group with codec='pickle'"):
        await faulty.call_one(0, "give", "object")


@pytest.mark.parametrize("what", ["object", "set of objects", "generator", "huge"])
async def test_a_result_that_does_not_travel_is_an_error_of_the_call(faulty: WorkerGroup[Any], what: str) -> None:
    with pytest.raises((TypeError, OverflowError)) as raised:
        await faulty.call_one(0, "give", what)
    assert isinstance(raised.value.__cause__, RemoteTraceback)


async def test_a_part_that_does_not_travel_ends_the_stream(faulty: WorkerGroup[Any]) -> None:
    parts = []
    with pytest.raises(TypeError, match=r"builtins\.object"):
        async for part in faulty.stream(0, "give_parts"):
            parts.append(part)
    assert parts == [1]
    assert await faulty.call_one(0, "was_closed")
