"""`aiospin bench` as users run it: on both backends, with wrong options, without peers, interrupted, and on a terminal.

Guarantee: a subprocess of these tests has ended with all its processes when its output is at its end, since all of them
hold it.
"""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from aiospin.bench.contract import KINDS
from aiospin.bench.scenarios import SCENARIOS
from aiospin.bench.subjects import load_subjects
from aiospin.cli import main
from aiospin.cli.bench import BadChoice, Progress, choose_peers, choose_scenarios

pytestmark = pytest.mark.repository  # what it stands on is tested on every Python

BACKENDS = [pytest.param("native", marks=pytest.mark.native), "fallback"]
SUBJECTS = load_subjects()
MACHINE = {"cpu", "cores", "kernel", "python", "aiospin", "backend", "rung", "policy", "load"}


def environment(backend: str | None = None) -> dict[str, str]:
    if backend is None:
        return dict(os.environ)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AIOSPIN_")}
    return {**kept, "AIOSPIN_NO_EXTENSIONS" if backend == "fallback" else "AIOSPIN_REQUIRE_EXTENSIONS": "1"}


def command(*args: object) -> list[str]:
    return [sys.executable, "-X", "dev", "-W", "error", "-m", "aiospin", "bench", *map(str, args)]


def bench(*args: object, backend: str | None = None) -> subprocess.CompletedProcess[str]:
    asked = command(*args)
    before = in_memory()
    with subprocess.Popen(
        asked, env=environment(backend), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        out, err = running.communicate()
    assert not left_in_memory(running.pid, before)
    return subprocess.CompletedProcess(asked, running.returncode, out, err)


def in_memory() -> set[str]:
    return set(os.listdir("/dev/shm"))


def left_in_memory(pid: int, before: set[str]) -> set[str]:
    """What a run left; others that were killed may have had its pid earlier."""
    return {name for name in in_memory() - before if name.startswith(f"bench-{pid}-")}


def assert_schema(document: dict[str, Any]) -> None:
    """What docs/reference/command-line.md says of the document."""
    assert document["format"] == 1
    assert document["machine"].keys() == MACHINE
    assert document["ranks"] == sorted(document["ranks"])
    assert all(isinstance(version, str) for version in document["versions"].values())
    assert all(isinstance(why, str) for why in document["absent"].values())
    for name, scenario in document["scenarios"].items():
        assert name in SCENARIOS
        assert scenario["compared"] is None or scenario["compared"] in scenario["figures"]
        assert set(scenario["more_is_better"]) <= scenario["figures"].keys()
        for point in scenario["points"]:
            assert point["floor"] is None or point["floor"] in point["subjects"]
            assert isinstance(point["label"], str)
            assert all(isinstance(why, str) for why in point["unfit"].values())
            for subject in point["subjects"].values():
                assert subject["kind"] in (*KINDS, "floor")
                assert len(subject["rounds"]) == document["rounds"]
                assert (subject["failure"] is None) == all(subject["rounds"])  # and no round is empty
                assert len(subject["curve"]) in (0, len(document["ranks"]))
                for figures in subject["rounds"]:
                    assert figures is None or all(isinstance(value, float) for value in figures.values())


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_quick_run_asks_everything(backend: str) -> None:
    done = bench("--quick", "--rounds", 1, "--seconds", 0.005, "--peers", "pipe,stream", "--json", backend=backend)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert_schema(document)
    assert document["machine"]["backend"] == backend
    assert document["pace"] == "quick"
    assert document["scenarios"].keys() == SCENARIOS.keys()
    failures = [
        (name, point["label"], subject, each["failure"])
        for name, scenario in document["scenarios"].items()
        for point in scenario["points"]
        for subject, each in point["subjects"].items()
        if each["failure"] is not None
    ]
    assert not failures
    for name, scenario in document["scenarios"].items():
        for point in scenario["points"]:
            subjects = {name for name, each in point["subjects"].items() if each["kind"] != "floor"}
            assert {"aiospin uvloop", "aiospin asyncio"} <= subjects
            assert "stream uvloop" in subjects or name in ("batch", "members")  # for which it has no calls
    (storm,) = document["scenarios"]["storm"]["points"]
    for loop in ("uvloop", "asyncio"):
        assert storm["subjects"][f"aiospin {loop}"]["rounds"][0]["lost"] == 0.0


@pytest.mark.native
def test_the_floors_are_measured_in_the_same_run() -> None:
    asked = ("--scenario", "latency,broadcast,throughput", "--peers", "pipe", "--rounds", 2, "--seconds", 0.005)
    done = bench("--quick", "--json", *asked)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert_schema(document)
    for name, floors in (
        ("latency", ["C cache line", "C pipe + epoll"]),
        ("broadcast", ["C pipe + epoll"]),
        ("throughput", ["C memcpy"]),
    ):
        point = document["scenarios"][name]["points"][0]
        assert point["floor"] == floors[0]
        for floor in floors:
            assert point["subjects"][floor]["failure"] is None
            assert all(value > 0 for figures in point["subjects"][floor]["rounds"] for value in figures.values())


def test_the_table_names_the_machine_and_what_is_missing() -> None:
    done = bench("--scenario", "storm", "--rounds", 1, "--seconds", 0.005)
    assert done.returncode == 0, done.stderr
    assert f"Linux {os.uname().release}" in done.stdout
    assert "backend" in done.stdout
    assert "aiospin asyncio" in done.stdout
    for name, subject in SUBJECTS.items():
        if why := subject.missing():
            assert f"skipped: {name}: {why}" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert done.stderr == "aiospin bench: round 1 of 1: storm\n"


# ---- what is asked wrongly


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        (["--scenario", "speed"], "--scenario: there is no 'speed'; there are latency, cpu"),
        (["--scenario", "latency,"], "--scenario: there is no ''"),
        (["--peers", "carrier pigeon"], "--peers: none is called 'carrier pigeon'; there are Pipe"),
        (["--peers", ""], "--peers: none is called ''"),
        (["--peers", "aiospin"], "--peers: none is called 'aiospin'"),
    ],
)
def test_what_does_not_exist_is_named(args: list[str], reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", *args]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert reason in captured.err


@pytest.mark.parametrize(
    "args",
    [
        ["--rounds", "0"],
        ["--rounds", "many"],
        ["--seconds", "0"],
        ["--seconds", "nan"],
        ["--seconds", "21"],
        ["--unheard-of"],
        ["stray"],
    ],
)
def test_bad_values_are_refused(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["bench", *args])
    assert ended.value.code == 2
    assert args[-1] in capsys.readouterr().err


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    assert main(["bench", "--plot", str(tmp_path / "file" / "plots")]) == 2
    error = capsys.readouterr().err
    assert "file" in error or "matplotlib" in error


def test_choices_are_typed_errors_and_keep_the_order() -> None:
    with pytest.raises(BadChoice):
        choose_scenarios(["nothing"])
    with pytest.raises(BadChoice):
        choose_peers(["nobody"], SUBJECTS)
    assert [scenario.name for scenario in choose_scenarios(["storm, latency", "cpu"])] == ["latency", "cpu", "storm"]
    names = [subject.name for subject in choose_peers(["PIPE", "zmq"], SUBJECTS)]
    assert names == ["aiospin sync", "aiospin uvloop", "aiospin asyncio", "Pipe", "pyzmq sync", "pyzmq asyncio"]


def test_a_policy_that_there_is_not_is_named_before_anything_is_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AIOSPIN_POLICY", "bogus")
    assert main(["bench", "--scenario", "storm"]) == 2
    assert "bogus" in capsys.readouterr().err


def test_the_folder_that_it_is_started_in_plays_no_part(tmp_path: Path) -> None:
    """A checkout's sources lie there, without the extension."""
    started_in, script = tmp_path / "here", tmp_path / "there" / "run.py"
    (started_in / "aiospin").mkdir(parents=True)
    (started_in / "aiospin" / "__init__.py").write_text("raise RuntimeError('the wrong one')")
    script.parent.mkdir()
    script.write_text("import sys\nfrom aiospin.cli import main\nif __name__ == '__main__':\n    sys.exit(main())\n")
    asked = ["bench", "--scenario", "storm", "--peers", "pipe", "--rounds", "1", "--seconds", "0.01", "--json"]
    done = subprocess.run(
        [sys.executable, str(script), *asked], cwd=started_in, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    (point,) = json.loads(done.stdout)["scenarios"]["storm"]["points"]
    assert [each["failure"] for each in point["subjects"].values()] == [None] * len(point["subjects"])
    assert "the wrong one" not in done.stderr


# ---- ways to end


def test_a_result_that_cannot_be_written_is_said_so() -> None:
    asked = command("--scenario", "storm", "--peers", "pipe", "--rounds", 1, "--seconds", 0.01)
    with open("/dev/full", "w") as full:
        done = subprocess.run(asked, env=environment(), stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "aiospin bench: the result could not be written: No space left on device"


@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)],
    ids=lambda each: str(each),
)
def test_a_signal_ends_it_and_leaves_nothing(number: signal.Signals, status: int) -> None:
    asked = command("--scenario", "crowd", "--peers", "pipe,queue,stream", "--seconds", 20)
    before = in_memory()
    with subprocess.Popen(
        asked, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as running:
        assert running.stderr is not None
        assert running.stderr.readline() == "aiospin bench: round 1 of 5: crowd\n"
        wait_for_processes_of(running.pid, 8)
        os.kill(running.pid, number)
        out, err = running.communicate(timeout=60)  # every process that is left would hold these open
    assert running.returncode == status, err
    assert out == ""
    assert err == ("aiospin: interrupted\n" if number == signal.SIGINT else "")
    assert not left_in_memory(running.pid, before)


def wait_for_processes_of(session: int, count: int) -> None:
    """Returns when the session has at least so many processes: the case is being played then."""
    while True:
        found = 0
        for entry in os.listdir("/proc"):
            if entry.isdigit():
                try:
                    stat = Path(f"/proc/{entry}/stat").read_text()
                except (FileNotFoundError, ProcessLookupError):
                    continue
                found += int(stat.rpartition(")")[2].split()[3]) == session
        if found >= count:
            return


# ---- progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def show(stream: io.StringIO) -> None:
    from aiospin.bench.rounds import cells

    progress = Progress(stream)
    found = cells([SCENARIOS["storm"]], [SUBJECTS["stream uvloop"], SUBJECTS["stream asyncio"]], True)
    progress.begin(2, 3, len(found))
    for cell in found:
        progress.step(cell)
    progress.end()


def test_a_terminal_gets_a_bar_in_place() -> None:
    stream = Terminal()
    show(stream)
    first, second = stream.getvalue().split("\r\x1b[K")[1:3]
    assert first == "round 2/3 [--------------------] storm, cancels: stream uvloop"
    assert second == "round 2/3 [##########----------] storm, cancels: stream asyncio"
    assert stream.getvalue().endswith("\r\x1b[K")
    assert "\n" not in stream.getvalue()


def test_a_file_gets_a_line_per_scenario() -> None:
    stream = io.StringIO()
    show(stream)
    assert stream.getvalue() == "aiospin bench: round 2 of 3: storm\n"


def test_it_needs_linux(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert main(["bench"]) == 1
    assert "needs Linux, and this is darwin" in capsys.readouterr().err
