"""Named segments: private whatever the umask, never in someone else's place, gone with their owner's close."""

from __future__ import annotations

import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from forked import Child, in_child
from strangers import RING, forgotten, refused

from aiospin import _backing, _header, _layout
from aiospin._errors import AttachError
from aiospin._segment import Segment

pytestmark = pytest.mark.usefixtures("leaves_nothing")


@pytest.fixture
def named(tmp_path: Path) -> Iterator[Segment]:
    """A named segment in a directory of the test's own."""
    made = Segment.create(readers=2, capacity=RING, directory=tmp_path, name="q")
    yield made
    made.drop()


@pytest.fixture
def strange_named(tmp_path: Path) -> Iterator[Segment]:
    """A named segment that this process holds, but will attach as a stranger would."""
    made = Segment.create(readers=2, capacity=RING, directory=tmp_path, name="q")
    with forgotten(made):
        yield made
    made.drop()


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o777])
def test_named_segments_are_private_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        segment = Segment.create(readers=1, capacity=RING, directory=tmp_path, name="q")
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path, *tmp_path.rglob("*"))}
    assert modes | {tmp_path.name: 0} == {tmp_path.name: 0, "q": 0o700, "ring": 0o600, "bell-0": 0o600, "bell-1": 0o600}
    segment.drop()
    assert os.listdir(tmp_path) == []


def test_a_name_alone_goes_to_the_directory_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIOSPIN_DIR", str(tmp_path))
    segment = Segment.create(readers=0, capacity=RING, name="q")
    assert segment.ref.path == str(tmp_path / "q")
    segment.drop()


def test_a_name_alone_goes_to_the_users_own_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AIOSPIN_DIR", raising=False)
    name = f"test-{secrets.token_hex(8)}"
    segment = Segment.create(readers=0, capacity=RING, name=name)
    assert segment.ref.path == f"/dev/shm/aiospin-{os.geteuid()}/{name}"
    assert stat.S_IMODE(os.stat(os.path.dirname(segment.ref.path)).st_mode) == 0o700
    segment.drop()


def test_without_a_name_two_segments_never_collide(tmp_path: Path) -> None:
    pair = [Segment.create(readers=0, capacity=RING, directory=tmp_path) for _ in range(2)]
    assert pair[0].ref.path != pair[1].ref.path
    for segment in pair:
        segment.drop()


@pytest.mark.parametrize("make", [Path.mkdir, Path.touch, lambda path: path.symlink_to("/tmp")])
def test_a_name_that_exists_is_refused(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "q")
    with pytest.raises(FileExistsError, match="q"):
        Segment.create(readers=1, capacity=RING, directory=tmp_path, name="q")
    assert os.listdir(tmp_path) == ["q"]


@pytest.mark.parametrize("name", ["", ".", "..", ".hidden", "a/b", "/abs", "nul\0"])
def test_a_name_that_is_no_file_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="name must be"):
        Segment.create(readers=1, capacity=RING, directory=tmp_path, name=name)


def test_a_parent_that_others_can_enter_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AIOSPIN_DIR", raising=False)
    parent = tmp_path / "parent"
    monkeypatch.setattr(_backing, "_own_parent", lambda: str(parent))
    parent.mkdir(0o755)
    with pytest.raises(AttachError, match="open to other users"):
        Segment.create(readers=1, capacity=RING, name="q")
    parent.rmdir()
    parent.symlink_to(tmp_path)
    with pytest.raises(NotADirectoryError):
        Segment.create(readers=1, capacity=RING, name="q")


def test_a_parent_that_vanishes_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AIOSPIN_DIR", raising=False)
    parent = tmp_path / "parent"
    monkeypatch.setattr(_backing, "_own_parent", lambda: str(parent))
    require, times = _backing._require_parent, iter([True])

    def require_then_lose(place: str) -> None:
        require(place)
        if next(times, False):
            os.rmdir(place)

    monkeypatch.setattr(_backing, "_require_parent", require_then_lose)
    Segment.create(readers=1, capacity=RING, name="q").drop()
    assert os.listdir(tmp_path) == []


def test_only_the_owner_takes_the_name_away(named: Segment) -> None:
    assert named.ref.path is not None
    in_child(named.drop)
    assert os.path.exists(named.ref.path)
    with Child(lambda channel: Segment.adopt(channel.recv()).drop()) as child:
        child.channel.send(named.ref)
        child.result()
    assert os.path.exists(named.ref.path)


def test_a_name_that_belongs_to_another_by_now_stays(tmp_path: Path) -> None:
    segment = Segment.create(readers=1, capacity=RING, directory=tmp_path, name="q")
    os.rename(tmp_path / "q", tmp_path / "moved")
    other = Segment.create(readers=1, capacity=RING, directory=tmp_path, name="q")
    segment.drop()
    assert sorted(os.listdir(tmp_path)) == ["moved", "q"]
    other.drop()
    shutil.rmtree(tmp_path / "moved")


def test_a_named_segment_outlives_its_owner(tmp_path: Path) -> None:
    def body(channel: Any) -> None:
        made = Segment.create(readers=1, capacity=RING, directory=tmp_path, name="q")
        made.mapping.store(_layout.seat_offset(1, 1), 7)
        channel.send(made.ref)
        channel.recv()

    with Child(body) as child:
        ref = child.channel.recv()
        child.kill()
    segment = Segment.adopt(ref)
    assert segment.mapping.load(_layout.seat_offset(1, 1)) == 7
    segment.ring(1)
    assert os.read(segment.bell(1), 10) == b"\0"
    segment.drop()
    _backing.remove_named(str(ref.path), _header.FileId(ref.device, ref.inode), 2)


def test_a_named_segment_is_found_without_its_owner(strange_named: Segment) -> None:
    ref = replace(strange_named.ref, pid=1 << 30, pid_namespace=17)
    segment = Segment.adopt(ref)
    segment.ring(2)
    assert os.read(strange_named.bell(2), 10) == b"\0"
    segment.drop()


def test_a_directory_that_is_gone_is_named(strange_named: Segment) -> None:
    path = str(strange_named.ref.path)
    os.rename(path, f"{path}-away")
    refused(strange_named.ref, f"No such file or directory: '{path}'")
    os.rename(f"{path}-away", path)


def test_a_directory_open_to_others_is_refused(strange_named: Segment) -> None:
    os.chmod(str(strange_named.ref.path), 0o701)
    with pytest.raises(AttachError, match="its mode is 0o701"):
        Segment.adopt(strange_named.ref)
    os.chmod(str(strange_named.ref.path), 0o700)


def test_a_directory_of_another_user_is_refused(strange_named: Segment, monkeypatch: pytest.MonkeyPatch) -> None:
    own = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: own + 1)
    with pytest.raises(AttachError, match=f"another user: its uid is {own}"):
        Segment.adopt(strange_named.ref)


@pytest.mark.parametrize("entry", [".", "ring"])
def test_symbolic_links_are_refused(strange_named: Segment, entry: str) -> None:
    place = os.path.normpath(os.path.join(str(strange_named.ref.path), entry))
    os.rename(place, f"{place}-away")
    os.symlink(f"{place}-away", place)
    refused(strange_named.ref, "a symbolic link|is not what it was")
    os.unlink(place)
    os.rename(f"{place}-away", place)


def test_a_copied_ring_file_is_refused(strange_named: Segment) -> None:
    place = os.path.join(str(strange_named.ref.path), "ring")
    os.rename(place, f"{place}-away")
    shutil.copy(f"{place}-away", place)
    refused(strange_named.ref, "is not what it was")
    copied = os.stat(place)
    refused(replace(strange_named.ref, inode=copied.st_ino, device=copied.st_dev), "is a copy")
    os.rename(f"{place}-away", place)
