"""`aiospin ls` and `aiospin unlink`: orphans are listed and removed; what somebody uses never is, nor anything else."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from forked import Child
from programs import Program

import aiospin
from aiospin import _named
from aiospin._errors import AttachError
from aiospin.cli import main

pytestmark = pytest.mark.usefixtures("leaves_nothing")

OWNS = """
    queue = aiospin.Queue(name=arguments[0], directory=arguments[1], readers=2, capacity=RING)
    writer, reader = queue.writer(), queue.reader(1)
    {body}
    say([str(queue.reader(0).handle), str(writer.handle)])
    hear()
"""


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where named segments go in these tests."""
    monkeypatch.setenv("AIOSPIN_DIR", str(tmp_path))
    yield tmp_path


def orphan(directory: Path, name: str, backend: str = aiospin.backend) -> None:
    """Leave a segment behind, as a killed owner does."""
    with Program(OWNS.format(body=""), [name, str(directory)], backend=backend) as owner:
        owner.hear()


def listed(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, dict[str, Any]]:
    """What `aiospin ls` says of each segment."""
    capsys.readouterr()
    assert main(["ls", "--json", *arguments]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return {segment["name"]: segment for segment in json.loads(out)}


def test_a_killed_owner_leaves_one_orphan_that_is_listed_and_removed(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    orphan(directory, "left")
    [segment] = listed(capsys).values()
    assert (segment["state"], segment["readers"], segment["users"], segment["damage"]) == ("orphan", 2, {}, None)
    assert segment["bytes"] >= 65536
    assert main(["unlink", "left"]) == 0
    assert capsys.readouterr().out.startswith(f"removed {directory}/left: ")
    assert os.listdir(directory) == []
    assert listed(capsys) == {}


@pytest.mark.parametrize("backend", [pytest.param("native", marks=pytest.mark.native), "fallback"])
@pytest.mark.parametrize(
    ("body", "users"),
    [
        ("", {"open"}),
        ("writer.put(b'x')", {"writer", "open"}),
        ("reader.__enter__()", {"reader 1", "open"}),
        ("writer.put(b'x'); reader.__enter__()", {"writer", "reader 1", "open"}),
    ],
)
def test_a_segment_in_use_is_never_removed(
    directory: Path, capsys: pytest.CaptureFixture[str], backend: str, body: str, users: set[str]
) -> None:
    with Program(OWNS.format(body=body), ["used", str(directory)], backend=backend) as owner:
        owner.hear()
        [segment] = listed(capsys).values()
        assert (segment["state"], segment["owner"]) == ("live", owner.pid)
        assert segment["users"] == dict.fromkeys(users, owner.pid)
        before = sorted(os.listdir(directory / "used"))
        for arguments in (["used"], [str(directory / "used")], ["--all"]):
            assert main(["unlink", *arguments]) == (0 if arguments == ["--all"] else 1)
        assert f"{directory}/used is in use: " in capsys.readouterr().err
        assert sorted(os.listdir(directory / "used")) == before
        owner.kill()
        assert main(["unlink", "--all"]) == 0
    assert os.listdir(directory) == []


def test_it_is_in_use_while_anybody_has_it_open_and_its_owner_is_dead(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Program(OWNS.format(body=""), ["used", str(directory)]) as owner:
        reader_text, writer_text = owner.hear()
        attached = aiospin.attach(reader_text)
        owner.kill()
    with Program("end = aiospin.attach(arguments); say(); hear(); end.put(b'on'); say(); hear()", writer_text) as peer:
        peer.hear()
        with pytest.raises(_named.InUse, match="by this process"):
            _named.unlink(str(directory / "used"))
        peer.say()
        peer.hear()
        assert attached.get() == b"on"
        attached.close()
        assert listed(capsys)["used"]["state"] == "live"
        assert main(["unlink", "used"]) == 1
        peer.kill()
    assert listed(capsys)["used"]["state"] == "orphan"
    assert main(["unlink", "used"]) == 0


def test_looking_drops_no_lock_of_this_process(directory: Path) -> None:
    with aiospin.Queue(name="own", capacity=65536) as queue, queue.writer() as writer:
        writer.put(b"x")
        [segment] = _named.find(str(directory))
        assert segment.users == {"open": os.getpid(), "writer": os.getpid()}
        with pytest.raises(_named.InUse):
            _named.unlink(segment.path)

        def look(channel: Any) -> dict[str, int]:
            [seen] = _named.find(str(directory))
            return seen.users

        with Child(look) as child:
            assert child.result() == {"open": os.getpid(), "writer": os.getpid()}


def test_a_stopped_user_is_a_user(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Program(OWNS.format(body="writer.put(b'x')"), ["used", str(directory)]) as owner:
        owner.hear()
        owner.signal(signal.SIGSTOP)
        assert main(["unlink", "used"]) == 1
        assert listed(capsys)["used"]["state"] == "live"
        owner.kill()
    assert main(["unlink", "--all"]) == 0


def test_nobody_attaches_to_what_is_being_removed(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Program(OWNS.format(body=""), ["left", str(directory)]) as owner:
        text, _ = owner.hear()
        owner.kill()

    locked = _named._lock_whole
    refused: list[str] = []

    def lock_then_attach(fd: int, path: str) -> None:
        locked(fd, path)
        with Program(
            """
                try:
                    aiospin.attach(arguments)
                except aiospin.AttachError as error:
                    say(str(error))
            """,
            text,
        ) as peer:
            refused.append(peer.hear())

    monkeypatch.setattr(_named, "_lock_whole", lock_then_attach)
    _named.unlink(str(directory / "left"))
    assert "is being unlinked" in refused[0]
    with pytest.raises(AttachError, match="No such file"):
        aiospin.attach(text)


def _scribble(place: Path) -> None:
    with open(place / "ring", "r+b") as ring:
        ring.write(b"\xff" * 512)


def _truncate(place: Path) -> None:
    os.truncate(place / "ring", 10)


def _copy(place: Path) -> None:
    (place / "again").write_bytes((place / "ring").read_bytes())
    os.replace(place / "again", place / "ring")


def _link_it(place: Path) -> None:
    os.link(place / "ring", place.parent / "another name")


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (_scribble, "none of aiospin's"),
        (_truncate, "its ring has 10 bytes"),
        (_copy, "a copy"),
        (_link_it, "its ring has 2 names"),
    ],
)
def test_what_may_not_be_a_segment_is_listed_and_left_alone(
    directory: Path, capsys: pytest.CaptureFixture[str], damage: Callable[[Path], None], said: str
) -> None:
    orphan(directory, "left")
    damage(directory / "left")
    everything = sorted(directory.rglob("*"))
    assert listed(capsys)["left"]["state"] == "damaged"
    assert main(["unlink", "--all"]) == 0
    assert "no orphans" in capsys.readouterr().out
    assert main(["unlink", "left"]) == 1
    assert said in capsys.readouterr().err
    assert sorted(directory.rglob("*")) == everything


def _other_version(place: Path) -> None:
    with open(place / "ring", "r+b") as ring:
        ring.seek(8)
        ring.write(b"\x63")


def _no_header_yet(place: Path) -> None:
    with open(place / "ring", "r+b") as ring:
        ring.write(bytes(1024))


@pytest.mark.parametrize(
    ("damage", "said"), [(_other_version, "layout version 99"), (_no_header_yet, "not an aiospin segment")]
)
def test_an_orphan_that_nobody_could_attach_to_says_so_and_can_be_removed(
    directory: Path, capsys: pytest.CaptureFixture[str], damage: Callable[[Path], None], said: str
) -> None:
    orphan(directory, "left")
    damage(directory / "left")
    segment = listed(capsys)["left"]
    assert (segment["state"], segment["readers"]) == ("orphan", None)
    assert said in segment["damage"]
    assert main(["ls"]) == 0
    assert said in capsys.readouterr().out
    assert main(["unlink", "--all"]) == 0
    assert os.listdir(directory) == []


def test_what_comes_into_its_directory_while_it_is_removed_stays(
    directory: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    orphan(directory, "left")
    locked = _named._lock_whole

    def lock_and_add(fd: int, path: str) -> None:
        locked(fd, path)
        (directory / "left" / "precious").touch()

    monkeypatch.setattr(_named, "_lock_whole", lock_and_add)
    assert main(["unlink", "left"]) == 1
    assert "not empty" in capsys.readouterr().err
    assert os.listdir(directory / "left") == ["precious"]


@pytest.mark.parametrize("has", ["nothing", "empty ring", "bells"])
def test_one_that_is_being_made_is_left_alone_and_an_old_one_is_an_orphan(
    directory: Path, capsys: pytest.CaptureFixture[str], has: str
) -> None:
    place = directory / "new"
    place.mkdir()
    place.chmod(0o1700 if has == "nothing" else 0o700)
    if has == "empty ring":  # its maker has not locked it yet
        (place / "ring").touch(0o600)
    if has == "bells":
        os.mkfifo(place / "bell-0", 0o600)
    assert listed(capsys)["new"]["state"] == "unfinished"
    assert main(["unlink", "--all"]) == 0
    assert main(["unlink", "new"]) == 1
    assert place.exists()
    os.utime(place, (0, 0))
    assert listed(capsys)["new"]["state"] == "orphan"
    assert main(["unlink", "--all"]) == 0
    assert not place.exists()


def _other_files(directory: Path) -> None:
    (directory / "thing").mkdir(0o700)
    (directory / "thing" / "ring").touch()
    (directory / "thing" / "precious").touch()


def _open_to_others(directory: Path) -> None:
    (directory / "thing").mkdir(0o755)
    (directory / "thing" / "ring").touch()


def _link(directory: Path) -> None:
    (directory.parent / "elsewhere").mkdir(0o700, exist_ok=True)
    (directory.parent / "elsewhere" / "ring").touch()
    (directory / "thing").symlink_to(directory.parent / "elsewhere")


def _file(directory: Path) -> None:
    (directory / "thing").touch()


def _empty(directory: Path) -> None:
    (directory / "thing").mkdir(0o700)
    os.utime(directory / "thing", (0, 0))


def _bell_that_is_a_file(directory: Path) -> None:
    (directory / "thing").mkdir(0o700)
    (directory / "thing" / "bell-0").write_bytes(b"precious")
    os.utime(directory / "thing", (0, 0))


@pytest.mark.parametrize("make", [_other_files, _open_to_others, _link, _file, _empty, _bell_that_is_a_file])
def test_what_is_no_segment_is_neither_listed_nor_touched(
    directory: Path, capsys: pytest.CaptureFixture[str], make: Callable[[Path], None]
) -> None:
    make(directory)
    everything = sorted(directory.parent.rglob("*"))
    assert listed(capsys) == {}
    assert main(["unlink", "--all"]) == 0
    assert main(["unlink", "thing"]) == 1
    assert f"{directory}/thing" in capsys.readouterr().err
    assert sorted(directory.parent.rglob("*")) == everything
    for path in sorted((directory.parent / "elsewhere").glob("*")):
        path.unlink()


@pytest.mark.parametrize("kind", ["link", "socket", "directory", "fifo"])
def test_a_ring_that_is_no_file_is_no_ring(directory: Path, tmp_path_factory: Any, kind: str) -> None:
    place = directory / "odd"
    place.mkdir(0o700)
    victim = tmp_path_factory.mktemp("victim") / "victim"
    victim.write_bytes(b"precious")
    if kind == "link":
        (place / "ring").symlink_to(victim)
    elif kind == "directory":
        (place / "ring").mkdir()
    elif kind == "fifo":
        os.mkfifo(place / "ring", 0o600)
    else:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(place / "ring"))
    os.utime(place, (0, 0))
    assert _named.find(str(directory)) == []
    with pytest.raises(AttachError, match="is not a segment"):
        _named.unlink(str(place))
    assert os.listdir(place) == ["ring"]
    assert victim.read_bytes() == b"precious"


@pytest.mark.parametrize("name", [".", "..", "./", "x/.."])
def test_the_directory_itself_is_no_segment(directory: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    os.utime(directory, (0, 0))
    assert main(["unlink", name]) == 1
    assert "does not end in the name of a segment" in capsys.readouterr().err
    assert directory.exists()


def test_names_of_terminals_control_characters_are_printed_harmlessly(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    orphan(directory, "\x1b[31mred\n")
    assert main(["ls"]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "\\x1b[31mred\\n" in out
    assert main(["unlink", "--all"]) == 0


@pytest.mark.parametrize("arguments", [["unlink"], ["unlink", ""], ["unlink", "x", "--all"], ["ls", "x"]])
def test_bad_arguments_are_refused(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2


def test_a_directory_that_is_not_there_or_none_is_said_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ls", "--directory", str(tmp_path / "none")]) == 0
    assert "no named segments" in capsys.readouterr().out
    (tmp_path / "file").touch()
    assert main(["ls", "--directory", str(tmp_path / "file")]) == 1
    assert "Not a directory" in capsys.readouterr().err
    assert main(["unlink", "missing", "--directory", str(tmp_path)]) == 1
    assert "No such file" in capsys.readouterr().err
