"""Facts from /proc, and the reasons for which one program may not look into another."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from forked import Child
from strangers import RING

import aiospin
from aiospin import _host, _roles
from aiospin._errors import AttachError
from aiospin._handle import Handle
from aiospin._segment import Segment

NOBODY = 65534
IS_ROOT = os.geteuid() == 0
UNSHARE = ["unshare", "--pid", "--fork", "--mount-proc", *([] if IS_ROOT else ["--user", "--map-root-user"])]
CAN_UNSHARE = (
    shutil.which("unshare") is not None and subprocess.run([*UNSHARE, "true"], capture_output=True).returncode == 0
)

pytestmark = pytest.mark.usefixtures("leaves_nothing")


class Peer:
    """A /proc of two processes, written by the test: the caller ("self") and the owner (7)."""

    def __init__(self, proc: Path) -> None:
        self.proc = proc
        self.write("self")

    def write(
        self, pid: str, uid: int = 1000, gid: int = 1000, caps: int = 0, user_map: str = "0 0 4294967295"
    ) -> None:
        place = self.proc / pid
        place.mkdir(exist_ok=True)
        ids = "Uid:" + f"\t{uid}" * 4 + "\nGid:" + f"\t{gid}" * 4 + "\n"
        (place / "status").write_text(f"Name:\tx: y\n{ids}CapPrm:\t{caps:016x}\n")
        (place / "uid_map").write_text(f"   {user_map}\n")


@pytest.mark.parametrize(
    ("peer", "reason"),
    [
        (None, "gone or hidden"),
        ({"uid": 1001}, "another user: its uid is 1001, this one's is 1000"),
        ({"gid": 1001}, "another group: its gid is 1001"),
        ({"user_map": "0 1000 1"}, "another user namespace"),
        ({"caps": 1 << 21}, "capabilities that this process lacks"),
        ({}, "not dumpable"),
    ],
)
def test_the_failing_condition_is_named(tmp_path: Path, peer: dict[str, Any] | None, reason: str) -> None:
    machine = Peer(tmp_path)
    if peer is not None:
        machine.write("7", **peer)
    assert reason in _host.why_not_readable(7, tmp_path)


def test_when_every_condition_holds_the_kernel_has_its_own_reasons(tmp_path: Path) -> None:
    machine = Peer(tmp_path)
    machine.write("self", uid=os.getuid())
    machine.write("7", uid=os.getuid())
    assert "security module" in _host.why_not_readable(7, tmp_path)


def test_start_times_survive_any_program_name(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    fields = " ".join(str(number) for number in range(4, 53))
    (tmp_path / "7" / "stat").write_text(f"7 (a) b) S) S {fields}\n")
    assert _host.start_time(7, tmp_path) == 22
    assert _host.start_time(8, tmp_path) == 0
    (tmp_path / "7" / "stat").write_text(f"7 (zombie) Z {fields}\n")
    assert _host.start_time(7, tmp_path) == 0


if IS_ROOT:

    def test_another_user_is_refused_by_name() -> None:
        def as_nobody(channel: Any) -> None:
            ref = channel.recv()
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
            with pytest.raises(AttachError) as caught:
                Segment.adopt(ref)
            channel.send(str(caught.value))

        with Child(as_nobody) as stranger:
            segment = Segment.create(readers=1, capacity=RING)
            stranger.channel.send(segment.ref)
            assert f"another user: its uid is 0, this one's is {NOBODY}" in stranger.channel.recv()
            segment.drop()


if CAN_UNSHARE:

    def test_a_program_in_another_pid_namespace(tmp_path: Path) -> None:
        segment = Segment.create(readers=2, capacity=RING)
        named = Segment.create(readers=2, capacity=RING, directory=tmp_path, name="q")
        script = (
            "import sys\n"
            "from aiospin import _roles\n"
            "from aiospin._errors import AttachError\n"
            "from aiospin._handle import Handle\n"
            "from aiospin._segment import Segment\n"
            "anonymous, named = map(Handle.parse, sys.argv[1:])\n"
            "try:\n"
            "    Segment.adopt(anonymous.segment)\n"
            "except AttachError as error:\n"
            "    print(error)\n"
            "segment = Segment.adopt(named.segment)\n"
            "print(_roles.holder(segment, 0), _roles.holder(segment, 2))\n"
            "print(_roles.claim(segment, named.role), flush=True)\n"
            "sys.stdin.read()\n"
        )
        _roles.claim(named, 0)
        handles = [str(Handle(made.ref, 1, "bytes")) for made in (segment, named)]
        root = Path(next(iter(aiospin.__path__))).parent
        path = os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])
        with subprocess.Popen(
            [*UNSHARE, sys.executable, "-c", script, *handles],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": path},
        ) as program:
            assert program.stdout is not None
            assert "lives in another PID namespace" in program.stdout.readline()
            assert program.stdout.readline() == "0 None\n"
            assert program.stdout.readline() == "1\n"
            assert _roles.holder(named, 1) not in (None, os.getpid())
            assert _roles.seat(named, 1).pid_namespace != named.ref.pid_namespace
            program.communicate("")
        assert _roles.holder(named, 1) is None
        _roles.release(named, 0)
        named.drop()
        segment.drop()
