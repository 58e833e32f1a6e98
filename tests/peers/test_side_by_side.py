"""The comparison's own logic, and those scenarios of ours that need no torch.

Guarantee: verdicts, tables, arguments and bounded processes are tested without fetching or installing anything.
Assumption: aiospin is installed; the tests of ours run on the native backend.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import environment
import peers_benchmarks
import peers_link
import peers_run
import peers_table
import peers_verdict
import pytest
import side_by_side
import theirs
from environment import Environment
from peers_sides import OURS, SIDES, SPINNING, THEIRS
from peers_titles import BENCHMARKS, SCENARIOS
from peers_verdict import HANGS, OK, Ended, verdict

HERE = Environment(Path(sys.executable), Path("unused"))
pytestmark = pytest.mark.repository

NEED_TORCH = {"objects", "tensor-kinds", "overflow", "kept", "reused", "torch-group"}
BEGUN = [{"event": "waits"}]

PEER_FAILED = """\
Process SpawnProcess-1:
Traceback (most recent call last):
  File "peers_link.py", line 70, in serve
    pipe.send(find(name)(part, *arguments))
aiospin.PeerDied: rank 0 has died
Traceback (most recent call last):
  File "peers_play.py", line 40, in <module>
EOFError
"""


# --- verdicts


@pytest.mark.parametrize(
    ("ended", "expected"),
    [
        (Ended(0, BEGUN), OK),
        (Ended(None, BEGUN), HANGS),
        (Ended(None), "wrong: it did not begin in time"),
        (Ended(1, BEGUN, "Traceback (most recent call last):\n  x\nValueError: 3\n"), "wrong: ValueError: 3"),
        (Ended(1, BEGUN, "Traceback (most recent call last):\n  x\nEOFError\n"), "wrong: EOFError"),
        (Ended(1, BEGUN, PEER_FAILED), "wrong: PeerDied: rank 0 has died"),
        (Ended(1, BEGUN, "Traceback (most recent call last):\n  x\nAssertionError: it got 3\n"), "wrong: it got 3"),
        (Ended(1, BEGUN, "no traceback\n"), "wrong: no traceback"),
        (Ended(3, BEGUN), "wrong: exit status 3"),
        (Ended(-11, BEGUN), "wrong: SIGSEGV"),
        (Ended(-6, BEGUN, "Fatal Python error: bool_dealloc: no\n\nCurrent\n"), "wrong: SIGABRT: bool_dealloc: no"),
    ],
)
def test_a_verdict_says_what_happened(ended: Ended, expected: str) -> None:
    assert verdict(ended) == expected


def test_a_verdict_fits_a_table() -> None:
    text = verdict(Ended(1, BEGUN, "Traceback (most recent call last):\nValueError: " + "x " * 500))
    assert len(text) == peers_verdict.LONGEST and text.endswith("...")


@pytest.mark.parametrize("line", ["", "hello", "[1]", "3", '{"no": "event"}', '{"event": 3}', '{"event": "waits"'])
def test_what_is_no_event_is_passed_over(line: str) -> None:
    assert peers_verdict.parse(line) is None


def test_an_event_is_read_back() -> None:
    assert peers_verdict.parse('{"event": "segment", "name": "psm_1"}') == {"event": "segment", "name": "psm_1"}


# --- tables


def rounds(**of_sides: list[float]) -> peers_table.Rounds:
    return {side: {"ping-pong/one-way": values} for side, values in of_sides.items()}


HEADS = {"theirs": "vLLM", "ours": "aiospin"}


@pytest.mark.parametrize(
    ("ours", "shown"),
    [(1e-6, "| 1/16 | 1/8 | yes |"), (2e-6, "| 1/8 | 1/8 | yes |"), (2.1e-6, "| 1/7.62 | 1/8 | no |")],
)
def test_a_figure_is_compared_with_theirs_and_with_the_goal(ours: float, shown: str) -> None:
    text = peers_table.speeds(rounds(theirs=[16e-6], ours=[ours]), HEADS)
    assert text.splitlines()[-1].endswith(shown)


def test_a_figure_is_the_median_with_its_range() -> None:
    text = peers_table.speeds(rounds(theirs=[12e-6, 30e-6, 14e-6], ours=[1e-6] * 3), HEADS)
    assert "| 14.0 (12.0 to 30.0) | 1.00 (1.00 to 1.00) |" in text


def test_only_what_was_measured_is_in_the_table() -> None:
    assert len(peers_table.speeds(rounds(theirs=[1.0], ours=[1.0]), HEADS).splitlines()) == 3


@pytest.mark.parametrize(
    ("ratio", "more", "said"),
    [(21.04, True, "21x"), (0.5, True, "0.5x"), (0.105, False, "1/9.52"), (0.62, False, "0.62"), (3.0, False, "3.00")],
)
def test_ratios_are_said_as_people_say_them(ratio: float, more: bool, said: str) -> None:
    assert peers_table.times(ratio, more) == said


def test_a_goal_holds_at_its_edge() -> None:
    by_key = {row.key: row for row in peers_table.ROWS}
    assert by_key["small/rate"].meets(20) and not by_key["small/rate"].meets(19.9)
    assert by_key["cadence/one-way"].meets(0.65) and not by_key["cadence/one-way"].meets(0.66)


def test_a_verdict_cannot_break_the_table() -> None:
    text = peers_table.happenings({"a": "A"}, {"a": {"theirs": "wrong: a|b", "ours": "ok"}}, HEADS)
    assert text.splitlines()[-1] == "| A | wrong: a/b | ok |"


# --- the command


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (["--only", "nothing"], "'nothing'"),
        (["--check", "--only", "ping-pong"], "'ping-pong'"),
        (["--rounds", "0"], "got 0"),
        (["--scale", "0"], "got 0"),
        (["--scale", "nan"], "got nan"),
    ],
)
def test_arguments_that_cannot_be_meant_are_named(
    given: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        side_by_side.arguments(given)
    assert stopped.value.code == 2
    assert named in capsys.readouterr().err


def fake_play(ours: Ended) -> object:
    def play(where: Environment, side: object, scenario: str) -> Ended:
        return ours if side is OURS else Ended(None, BEGUN)

    return play


@pytest.mark.parametrize(("ours", "status"), [(Ended(0, BEGUN), 0), (Ended(None, BEGUN), 1), (Ended(1), 1)])
def test_the_exit_status_is_about_ours(
    ours: Ended, status: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(environment, "prepare", lambda root, theirs_too: HERE)
    monkeypatch.setattr(side_by_side, "machine", lambda where: {})
    monkeypatch.setattr(side_by_side, "described", lambda facts: "a machine")
    monkeypatch.setattr(peers_run, "play", fake_play(ours))
    file = tmp_path / "all.json"
    assert side_by_side.main(["--check", "--only", "kept", "--json", str(file)]) == status
    assert f"| hangs | {verdict(ours)} |" in capsys.readouterr().out
    assert json.loads(file.read_text())["scenarios"] == {"kept": {"theirs": HANGS, "ours": verdict(ours)}}


def test_every_scenario_and_benchmark_is_there() -> None:
    for scenario in SCENARIOS.values():
        assert callable(peers_link.find(scenario.play))
    assert set(BENCHMARKS) == set(peers_benchmarks.DRIVES)
    assert not set(BENCHMARKS) & set(SCENARIOS), "--only would mean both"


# --- sides


def test_a_side_runs_as_it_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_USE_SPINLOOP_EXT", "0")
    monkeypatch.setenv("AIOSPIN_POLICY", "eco")
    monkeypatch.setenv("PATH", "kept")
    ours, spinning = OURS.environment("v", "s"), SPINNING.environment("v", "s")
    assert "VLLM_USE_SPINLOOP_EXT" not in ours and "AIOSPIN_POLICY" not in ours and ours["PATH"] == "kept"
    assert spinning["VLLM_USE_SPINLOOP_EXT"] == "1" and THEIRS.environment("v", "s")["VLLM_USE_SPINLOOP_EXT"] == "0"
    assert set(SIDES) == {"theirs", "theirs-spinning", "ours"}


def test_what_is_missing_of_theirs_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"lacks vllm/distributed/device_communicators/shm_broadcast\.py"):
        theirs.install(tmp_path)


# --- the environment


def test_what_is_built_does_not_count_as_source(tmp_path: Path) -> None:
    for name in ("aiospin/a.py", "aiospin/_native.so", "aiospin/__pycache__/a.pyc", "native/b.cpp", "tests/c.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    for name in ("setup.py", "pyproject.toml"):
        (tmp_path / name).write_text("")
    assert environment.sources(tmp_path) == [
        *(Path("aiospin/a.py"), Path("native/b.cpp"), Path("pyproject.toml"), Path("setup.py"))
    ]


def test_contents_cannot_move_from_one_file_to_the_next() -> None:
    assert environment.digest([b"ab", b"c"]) != environment.digest([b"a", b"bc"])


def test_a_step_is_done_only_as_it_was_asked_for(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    assert not environment.is_done(mark, "torch")
    mark.write_text("torch")
    assert environment.is_done(mark, "torch") and not environment.is_done(mark, "numpy")


# --- bounded processes

FAMILY = """\
import subprocess, sys
program = "import sys; fifo = open('fifo', 'wb', 0); fifo.write(b'lives'); print(flush=True); sys.stdin.read()"
child = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
child.stdout.readline()
print('{"event": "waits"}', flush=True)
sys.stdin.read()
"""


def group(tmp_path: Path, program: str) -> peers_run.Group:
    return peers_run.Group([sys.executable, "-c", program], tmp_path, dict(os.environ))


def test_a_group_that_hangs_is_ended_with_all_it_started(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    reader = os.open(tmp_path / "fifo", os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert verdict(peers_run.follow(group(tmp_path, FAMILY), patience=0.2)) == HANGS
        os.set_blocking(reader, True)
        assert os.read(reader, 100) == b"lives"
        assert os.read(reader, 100) == b"", "it comes when the grandchild, which holds the other end, is gone"
    finally:
        os.close(reader)


def test_a_group_that_does_not_begin_is_not_waited_for(tmp_path: Path) -> None:
    ended = peers_run.follow(group(tmp_path, "import sys; sys.stdin.read()"), begins=0.2)
    assert verdict(ended) == "wrong: it did not begin in time"


def test_what_a_group_leaves_in_shared_memory_is_removed(tmp_path: Path) -> None:
    name = f"peers-test-{os.getpid()}"
    program = f'open(\'/dev/shm/{name}\', \'w\').close(); print(\'{{"event": "segment", "name": "{name}"}}\')'
    assert verdict(peers_run.follow(group(tmp_path, program))) == OK
    assert not Path("/dev/shm", name).exists()


def test_news_after_the_end_is_an_error_that_says_why(tmp_path: Path) -> None:
    failing = group(tmp_path, "raise LookupError('no queue')")
    with pytest.raises(ChildProcessError, match="LookupError: no queue"):
        failing.wait_for("figures", 60)
    assert failing.process.wait(60) == 1
    failing.end()


def test_a_scenario_that_fails_is_wrong() -> None:
    assert verdict(peers_run.play(HERE, OURS, "no such scenario")) == "wrong: KeyError: 'no such scenario'"


# --- ours


@pytest.mark.native
@pytest.mark.parametrize("name", [name for name in SCENARIOS if name not in NEED_TORCH])
def test_ours_comes_out_right(name: str) -> None:
    ended = peers_run.play(HERE, OURS, name)
    assert verdict(ended) == OK, ended.errors
