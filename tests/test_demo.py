"""The demo end to end: both backends, both loops, files that are awkward, and every way to end early.

Guarantee: a subprocess of these tests has ended with all its children when its output is at its end, since all of
them hold it; `leaves_nothing` sees to the rest where the demo runs in this process.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvloop

import aiospin
from aiospin.cli import main
from aiospin.cli.demo_crew import Crew
from aiospin.cli.demo_front import FrontEnd
from aiospin.cli.demo_sources import BATCH_BYTES, Sources
from aiospin.cli.demo_wire import Answer, pack_head, split_file
from aiospin.cli.demo_worker import answer_for, count_lines
from aiospin.cli.report import Progress, percentiles, printable

KEYS = {
    *("files", "bytes", "verified", "lost", "messages_per_s", "latency_us", "idle_cpu_percent"),
    *("backend", "rung"),
}
BACKENDS = [pytest.param("native", marks=pytest.mark.native), "fallback"]
RING = "64 KiB"
BIG = 300_000
"""more than RING"""


@pytest.fixture(autouse=True, scope="session")
def libuv_has_its_pipe() -> None:
    """libuv opens a pipe with its first loop and keeps it for the life of the process, which is not ours to count."""
    uvloop.new_event_loop().close()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Files of every awkward kind; of them, five can be sent."""
    root = tmp_path / "tree"
    (root / "folder").mkdir(parents=True)
    (root / "empty").touch()
    (root / "lines").write_bytes(b"one\ntwo\nthree\n")
    (root / "folder" / "no newline at the end").write_bytes(b"one\ntwo")
    (root / "folder" / "big").write_bytes(bytes(range(256)) * (BIG // 256 + 1))
    Path(os.fsdecode(os.fsencode(root) + b"/not utf-8 \xff\n")).write_bytes(b"\n" * 1000)
    (root / "folder" / "loop").symlink_to(root)
    (root / "dangling").symlink_to("nowhere")
    os.mkfifo(root / "fifo")
    return root


def environment(backend: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AIOSPIN_")}
    return {**kept, "AIOSPIN_NO_EXTENSIONS" if backend == "fallback" else "AIOSPIN_REQUIRE_EXTENSIONS": "1"}


def command(*args: object) -> list[str]:
    return [sys.executable, "-X", "dev", "-W", "error", "-m", "aiospin", "demo", *map(str, args)]


def run_demo(*args: object, backend: str = aiospin.backend) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*args), env=environment(backend), capture_output=True, text=True, timeout=100, check=False
    )


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_every_file_is_verified(tree: Path, backend: str, loop: str) -> None:
    done = run_demo(tree, "--json", "--idle", 0.1, "--capacity", RING, "--loop", loop, backend=backend)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result.keys() >= KEYS
    assert result["files"] == result["verified"] == 5
    assert result["lost"] == 0
    assert result["bytes"] == sum(path.stat().st_size for path in tree.rglob("*") if path.is_file())
    assert result["backend"] == backend
    assert result["loop"] == loop
    assert result["latency_us"].keys() == {"p50", "p99", "p99_9"}
    assert 0 < result["latency_us"]["p50"] <= result["latency_us"]["p99"] <= result["latency_us"]["p99_9"]
    assert [each["name"] for each in result["processes"]] == ["front end", "worker 0", "worker 1"]
    assert [Path(each["path"]).name for each in result["unreadable"]] == ["dangling"]
    assert "Warning" not in done.stderr


def test_the_table_names_what_the_json_does(tree: Path) -> None:
    done = run_demo(tree, "--idle", 0, "--workers", 1)
    assert done.returncode == 0, done.stderr
    assert "verified 5, lost 0" in done.stdout
    assert f"{aiospin.backend}, rung {aiospin.rung()}" in done.stdout
    assert "1 not readable" in done.stdout
    assert "dangling" in done.stdout
    assert "worker 0" in done.stdout


def test_three_workers_and_one_file(tree: Path, leaves_nothing: object, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", str(tree / "lines"), "--workers", "3", "--idle", "0.1", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["files"], result["bytes"], result["verified"], result["workers"]) == (1, 14, 1, 3)
    assert result["capacity"] == "16 MiB"


def test_an_empty_folder_is_no_error(
    tmp_path: Path, leaves_nothing: object, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", str(tmp_path), "--idle", "0", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["files"], result["bytes"], result["lost"]) == (0, 0, 0)
    assert result["latency_us"] == {"p50": None, "p99": None, "p99_9": None}
    assert main(["demo", str(tmp_path), "--idle", "0"]) == 0


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        (["nowhere/at/all"], "nowhere/at/all"),
        (["/dev/null"], "/dev/null"),
        ([".", "--capacity", "0"], "0"),
        ([".", "--capacity", "-1"], "-1"),
        ([".", "--capacity", "much"], "much"),
        ([".", "--capacity", "9999 TiB"], "10994016766197760 bytes exceeds"),
        ([".", "--workers", "5000"], "5000"),
    ],
)
def test_bad_values_are_named(
    args: list[str], reason: str, leaves_nothing: object, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", *args]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert reason in captured.err
    assert "Traceback" not in captured.err


@pytest.mark.parametrize(
    "args",
    [
        *(["--workers", value] for value in ("0", "-1", "two")),
        *(["--window", value] for value in ("0", "many")),
        *(["--idle", value] for value in ("-1", "nan", "inf", "long")),
        *(["--loop", "trio"], ["--nonsense"], [".", "."]),
    ],
    ids=" ".join,
)
def test_bad_options_are_refused_by_the_parser(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["demo", *args])
    assert end.value.code == 2
    assert args[-1] in capsys.readouterr().err


class Running:
    """A demo in a session of its own, followed by what it prints."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.heard: list[str] = []

    def wait_for(self, text: str) -> None:
        """Read stderr up to a line that holds `text`."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.heard.append(line)
            if text in line:
                return
        pytest.fail(f"never said {text!r}: {''.join(self.heard)}")

    def interrupt(self) -> None:
        """What a terminal does at Ctrl-C: SIGINT to everybody."""
        os.killpg(self.process.pid, signal.SIGINT)

    def workers(self) -> list[int]:
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return [pid for pid in map(int, children) if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]

    def end(self) -> tuple[int, str]:
        """Exit code and all of stderr, once the demo and every child of it are gone."""
        _, rest = self.process.communicate(timeout=60)
        return self.process.returncode, "".join(self.heard) + rest


@contextlib.contextmanager
def running(*args: object, backend: str = aiospin.backend) -> Iterator[Running]:
    with subprocess.Popen(
        command(*args),
        env=environment(backend),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield Running(process)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("stage", ["starting 2 workers", "sending files", "sent,", "idling"])
@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_ctrl_c_ends_it_at_any_stage(tmp_path: Path, stage: str, backend: str, loop: str) -> None:
    for number in range(20):
        (tmp_path / f"{number}").write_bytes(b"x" * number)
    with (tmp_path / "huge").open("wb") as huge:
        huge.truncate(32 << 20)
    with running(tmp_path, "--idle", 60, "--capacity", RING, "--loop", loop, backend=backend) as demo:
        demo.wait_for(stage)
        demo.interrupt()
        code, heard = demo.end()
    assert code == 130, heard
    assert "interrupted" in heard
    assert "Traceback" not in heard
    assert "Warning" not in heard  # multiprocessing's tracker would warn of semaphores that it had to remove


def test_ctrl_c_twice_is_as_clean(tree: Path) -> None:
    with running(tree, "--idle", 60) as demo:
        demo.wait_for("idling")
        demo.interrupt()
        demo.interrupt()
        code, heard = demo.end()
    assert code == 130, heard
    assert "Traceback" not in heard


@pytest.mark.parametrize("stage", ["sending files", "idling"])
def test_a_killed_worker_is_reported(tree: Path, stage: str) -> None:
    with running(tree, "--idle", 60) as demo:
        demo.wait_for(stage)
        victim = demo.workers()[1]
        os.kill(victim, signal.SIGKILL)
        code, heard = demo.end()
    assert code == 1, heard
    assert f"(pid {victim}) was killed by SIGKILL" in heard
    assert "Traceback" not in heard


@pytest.mark.parametrize("stage", ["starting 2 workers", "sending files", "idling"])
def test_workers_end_when_the_front_end_is_killed(tree: Path, stage: str) -> None:
    with running(tree, "--idle", 60) as demo:
        demo.wait_for(stage)
        demo.process.kill()
        code, _ = demo.end()
    assert code == -signal.SIGKILL


class CrewOfOne(Crew):
    """Stands for a worker that this process plays itself."""

    def __init__(self) -> None:
        self.processes = []


async def test_a_wrong_answer_is_lost_and_named(tree: Path) -> None:
    """The worker played here answers for `lines` with the digest of something else."""

    async def lie(reader: aiospin.QueueReader[bytes], answers: aiospin.QueueWriter[bytes]) -> None:
        with reader, answers:
            while True:
                with await reader.acquire_read() as slot:
                    answer = answer_for(0, slot.data)
                    if bytes(split_file(slot.data)[1]).startswith(b"one\ntwo\n"):
                        answer = Answer(0, answer.index, answer.lines, hashlib.sha256(b"else").digest())
                await answers.aput(answer.pack())

    with (
        aiospin.Queue[bytes](readers=1, capacity="1 MiB") as queue,
        aiospin.Queue[bytes](readers=1, capacity=RING) as back,
    ):
        liar = asyncio.ensure_future(lie(queue.reader(0), back.writer()))
        with queue.writer() as writer, back.reader(0) as reader:
            front = FrontEnd(queue, writer, [reader], CrewOfOne(), Sources(str(tree)), 2, Progress())
            outcome = await front.run(0)
        liar.cancel()
        await asyncio.gather(liar, return_exceptions=True)
    assert (outcome.files, outcome.verified, outcome.lost) == (5, 4, 1)
    assert outcome.wrong == ["worker 0 answered wrongly for lines"]


async def test_sources_are_read_as_they_are(tree: Path) -> None:
    sources = Sources(str(tree), without=frozenset({"folder"}))
    read = {source.path: source async for batch in sources.batches() for source in batch}
    assert read.keys() == {b"empty", b"lines", b"not utf-8 \xff\n"}
    assert (read[b"empty"].chunks, read[b"empty"].nbytes) == ((), 0)
    assert (read[b"lines"].lines, read[b"lines"].digest) == (3, hashlib.sha256(b"one\ntwo\nthree\n").digest())
    assert sources.unreadable == [(str(tree / "dangling"), os.strerror(2))]


async def test_sources_left_early_end_their_thread(tree: Path, leaves_nothing: object) -> None:
    for name, nbytes in (("a", BATCH_BYTES), ("b", 1 << 33)):  # sparse; nobody waits for the 8 GiB of the second
        (tree / name).touch()
        os.truncate(tree / name, nbytes)
    async with contextlib.aclosing(Sources(str(tree)).batches()) as batches:
        assert [source.path for source in await anext(batches)] == [b"a"]


@pytest.mark.parametrize("body", [b"", b"\n", b"a", b"\n" * (3 << 20), b"x" * (1 << 20) + b"\n", os.urandom(100_000)])
def test_lines_are_counted_in_place(body: bytes) -> None:
    assert count_lines(memoryview(body)) == body.count(b"\n")


def test_the_wire_gives_back_what_it_was_given() -> None:
    index, body = split_file(memoryview(pack_head(7, b"a/b") + b"bytes"))
    assert (index, bytes(body)) == (7, b"bytes")
    answer = Answer(1, 2, 3, bytes(32))
    assert Answer.unpack(memoryview(answer.pack())) == answer


def test_percentiles_go_by_nearest_rank() -> None:
    assert percentiles([]) == {"p50": None, "p99": None, "p99_9": None}
    assert percentiles([3000]) == {"p50": 3.0, "p99": 3.0, "p99_9": 3.0}
    assert percentiles([number * 1000 for number in range(1000)]) == {"p50": 500.0, "p99": 990.0, "p99_9": 999.0}


def test_names_cannot_disturb_a_terminal() -> None:
    assert printable("plain") == "plain"
    assert printable("a\x1b[2J\n\udcff") == "a\\x1b[2J\\n\\udcff"


def test_progress_on_a_terminal_is_one_line_that_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal:
        text = ""

        def isatty(self) -> bool:
            return True

        def write(self, text: str) -> None:
            self.text += text

        def flush(self) -> None:
            pass

    terminal: Any = Terminal()
    now = 0.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    progress = Progress(terminal)
    for files in range(3):
        now += 1.0
        progress.count(files, 0, 0)
    progress.count(3, 0, 0)
    progress.stage("done")
    assert terminal.text.count("\r") == 3
    assert terminal.text.endswith("\r\x1b[Kaiospin demo: done\n")
    assert "3 files" not in terminal.text
