"""Other users: what the kernel and the library keep from them, with processes that really are other users.

Guarantee: every refusal is tried beside the same thing done by the owner's own user, which works.
Assumption: root, which can become anybody; as another user these tests are not defined.
"""

from __future__ import annotations

import ctypes
import os
import secrets
import stat
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from ends import RING
from forked import Child

import aiospin
from aiospin import _layout
from aiospin._handle import Handle
from aiospin._segment import registry

pytestmark = pytest.mark.usefixtures("leaves_nothing")

# Users of this run alone: each has a directory in /dev/shm, and suites of two backends may run beside each other.
OWNER = 100_000 + 2 * secrets.randbelow(1 << 24)
STRANGER = OWNER + 1
PR_SET_DUMPABLE = 4


def become(uid: int) -> None:
    """Be another user from here on, as a login would make one: no groups, no capabilities, and dumpable again."""
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    assert ctypes.CDLL(None, use_errno=True).prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) == 0
    os.environ.pop("AIOSPIN_DIR", None)  # which is another user's


def owning(umask: int) -> Child:
    """A process of OWNER that has an anonymous and a named queue, tells their handles, and closes them when told."""

    def own(channel: Any) -> None:
        become(OWNER)
        os.umask(umask)
        name = f"test-{os.getpid()}"
        with aiospin.Queue(capacity=RING) as anonymous, aiospin.Queue(capacity=RING, name=name) as named:
            writers = [anonymous.writer(), named.writer()]
            for writer in writers:
                writer.put(b"secret")
            channel.send([str(queue.reader(0).handle) for queue in (anonymous, named)])
            channel.recv()
            for writer in writers:
                writer.close()

    return Child(own)


def as_user(uid: int, act: Any) -> Any:
    """What `act()` returns when that user does it."""

    def body(_: Any) -> Any:
        become(uid)
        return act()

    with Child(body) as child:
        return child.result()


def attached(text: str) -> str:
    """The message that attaching gives, or how it is refused."""
    try:
        with aiospin.attach(text) as reader:
            return str(reader.get(timeout=30))
    except aiospin.AttachError as error:
        return str(error)


if os.geteuid() == 0:

    @pytest.fixture(params=[0o000, 0o022, 0o777], ids=oct)
    def owned(request: pytest.FixtureRequest) -> Iterator[list[str]]:
        """The handles of an anonymous and a named queue of OWNER, made under each umask."""
        with owning(request.param) as owner:
            handles = owner.channel.recv()
            yield handles
            owner.channel.send("close")
            owner.result()

    def test_a_stranger_with_the_handles_gets_nothing(owned: list[str]) -> None:
        anonymous, named = owned
        why = as_user(STRANGER, lambda: attached(anonymous))
        assert f"belongs to another user: its uid is {OWNER}, this one's is {STRANGER}" in why
        path = Handle.parse(named).segment.path
        assert path is not None
        why = as_user(STRANGER, lambda: attached(named))
        assert path in why and ("Permission denied" in why or "another user" in why)
        for text in owned:
            assert as_user(OWNER, lambda text=text: attached(text)) == "b'secret'"

    def test_the_kernel_keeps_a_stranger_out(owned: list[str]) -> None:
        """Not only the library: nothing that a handle names can be opened."""
        anonymous, named = (Handle.parse(text).segment for text in owned)
        assert named.path is not None
        inside = [os.path.join(named.path, name) for name in ("ring", "bell-0", "bell-1")]
        places = [f"/proc/{anonymous.pid}/fd/{fd}" for fd in (anonymous.segment_fd, *anonymous.bell_fds)]

        def opened() -> list[str]:
            found = []
            for place in [*places, *inside]:
                for flags in (os.O_RDONLY, os.O_WRONLY, os.O_RDWR, os.O_PATH):
                    with suppress(PermissionError):
                        os.close(os.open(place, flags | os.O_NONBLOCK))
                        found.append(place)
            return found

        assert as_user(STRANGER, opened) == []

    def test_modes_are_private_whatever_the_umask(owned: list[str]) -> None:
        path = Path(str(Handle.parse(owned[1]).segment.path))
        entries = [path.parent, path, *path.iterdir()]
        assert {entry.name for entry in path.iterdir()} == {"ring", "bell-0", "bell-1"}
        assert all(entry.lstat().st_uid == OWNER for entry in entries)
        modes = {stat.S_IMODE(entry.lstat().st_mode) for entry in entries if entry.is_dir()}
        assert modes == {0o700}
        assert {stat.S_IMODE(entry.lstat().st_mode) for entry in entries if not entry.is_dir()} == {0o600}

    @pytest.mark.parametrize("kind", ["directory", "file", "fifo", "link to the stranger's", "link to nothing"])
    def test_a_place_that_a_stranger_took_first_is_refused(kind: str) -> None:
        """/dev/shm is everybody's: the owner's own directory there may have been made by somebody else."""
        place = f"/dev/shm/aiospin-{OWNER}"
        with tempfile.TemporaryDirectory(dir="/dev/shm") as theirs:
            os.chmod(theirs, 0o777)
            {
                "directory": lambda: os.mkdir(place, 0o777),
                "file": lambda: Path(place).touch(),
                "fifo": lambda: os.mkfifo(place, 0o666),
                "link to the stranger's": lambda: os.symlink(theirs, place),
                "link to nothing": lambda: os.symlink(f"{theirs}/nothing", place),
            }[kind]()
            os.chown(place, STRANGER, STRANGER, follow_symlinks=False)

            def create() -> str:
                try:
                    aiospin.Queue(capacity=RING, name="q").close()
                except (aiospin.AttachError, OSError) as error:
                    return type(error).__name__
                return "made"

            try:
                assert as_user(OWNER, create) in {"AttachError", "NotADirectoryError"}
                assert os.listdir(theirs) == []
            finally:
                (os.rmdir if kind == "directory" else os.unlink)(place)


@pytest.mark.parametrize("entry", ["ring", "bell-0", "bell-1"])
@pytest.mark.parametrize("kind", ["file", "directory", "fifo", "link"])
def test_what_took_the_place_of_a_file_is_refused(tmp_path: Path, entry: str, kind: str) -> None:
    with aiospin.Queue[bytes](capacity=RING, name="q", directory=tmp_path) as queue:
        text = str(queue.writer().handle)
        place = tmp_path / "q" / entry
        place.rename(tmp_path / "aside")
        make: dict[str, Any] = {
            "file": place.touch,
            "directory": place.mkdir,
            "fifo": lambda: os.mkfifo(place),
            "link": lambda: place.symlink_to(tmp_path / "aside"),
        }
        make[kind]()
        with Child(lambda _: attach_in_a_fresh_process(text)) as child:
            refusal = child.result()
        assert "is not what it was" in refusal, refusal
        (place.rmdir if kind == "directory" else place.unlink)()
        (tmp_path / "aside").rename(place)


def attach_in_a_fresh_process(text: str) -> str:
    """As a process that has nothing open: a forked one forgets what it inherited."""
    registry.segments.clear()
    try:
        aiospin.attach(text).close()
    except aiospin.AttachError as error:
        return str(error)
    return "attached"


@pytest.mark.parametrize("call", ["mkdir", "mkfifo"])
def test_a_link_that_is_slipped_in_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    """Somebody puts a link in a name's place between its making and its opening: what it leads to stays as it is."""
    victim = tmp_path / "victim"
    victim.mkdir() if call == "mkdir" else victim.touch()
    victim.chmod(0o755)
    real = getattr(os, call)

    def make_and_swap(path: Any, mode: int, *, dir_fd: int | None = None) -> None:
        real(path, mode, dir_fd=dir_fd)
        os.rename(path, f"{path}-aside", src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
        os.symlink(victim, path, dir_fd=dir_fd)

    monkeypatch.setattr(os, call, make_and_swap)
    with pytest.raises((OSError, aiospin.AttachError)):
        aiospin.Queue(capacity=RING, name="q", directory=tmp_path)
    assert stat.S_IMODE(victim.stat().st_mode) == 0o755
    assert victim.is_file() or list(victim.iterdir()) == []


def test_a_role_out_of_range_is_no_way_around(tmp_path: Path) -> None:
    with aiospin.Queue[bytes](capacity=RING, name="q", directory=tmp_path) as queue:
        ref = queue.writer().handle.segment
        with pytest.raises(aiospin.AttachError, match="out of range"):
            aiospin.attach(Handle(ref, _layout.reader_role(1), "bytes"))
