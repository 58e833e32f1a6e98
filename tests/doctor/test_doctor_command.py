"""`aiospin doctor` as users run it: its report, its JSON, its exit codes, on both backends, and interrupted."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from machines import Lab

from aiospin.cli import doctor, main
from aiospin.doctor.survey import SUBJECTS

pytestmark = pytest.mark.usefixtures("leaves_nothing")

BACKENDS = [pytest.param("native", marks=pytest.mark.native), "fallback"]
FACT = {"text", "value", "verdict", "problem", "remedy"}
MODE = {
    *("failure", "watts", "samples", "p50_us", "p99_us", "cpu_share"),
    *("switches_per_s", "instructions_per_s", "cycles_per_s", "uncounted"),
}


def environment(backend: str | None = None, **more: str) -> dict[str, str]:
    if backend is None:
        return {**os.environ, **more}
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AIOSPIN_")}
    return {**kept, "AIOSPIN_NO_EXTENSIONS" if backend == "fallback" else "AIOSPIN_REQUIRE_EXTENSIONS": "1", **more}


def command(*args: object) -> list[str]:
    return [sys.executable, "-X", "dev", "-W", "error", "-m", "aiospin", "doctor", *map(str, args)]


def run(*args: object, backend: str | None = None, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*args), env=environment(backend, **more), capture_output=True, text=True, check=False)


def assert_schema(document: dict[str, Any]) -> None:
    """What docs/reference/command-line.md says of the document."""
    assert document.keys() == {"format", "aiospin", "verdict", "sections", "warnings", "power"}
    assert document["format"] == 1
    assert list(document["sections"]) == list(SUBJECTS)
    bad = []
    for name, section in document["sections"].items():
        assert section.keys() == {"title", "facts"} and section["facts"]
        for fact, found in section["facts"].items():
            assert found.keys() == FACT
            assert found["verdict"] in ("ok", "warn", "plain", "unknown")
            if found["verdict"] == "warn":
                bad.append((name, fact))
    if document["power"] is not None:
        power = document["power"]
        assert power.keys() == {"seconds", "load", "meter", "no_meter", "chosen", "modes"}
        assert (power["meter"] is None) != (power["no_meter"] is None)
        assert all(mode.keys() == MODE for mode in power["modes"].values())
    else:
        assert [(each["section"], each["fact"]) for each in document["warnings"]] == bad
    assert all(each.keys() == {"section", "fact", "problem", "remedy"} for each in document["warnings"])
    assert document["verdict"] == ("warn" if document["warnings"] else "ok")


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_document_is_as_documented(backend: str) -> None:
    done = run("--json", backend=backend)
    document = json.loads(done.stdout)
    assert_schema(document)
    assert done.stderr == ""
    assert done.returncode == (0 if document["verdict"] == "ok" else 1)
    assert document["sections"]["software"]["facts"]["backend"]["value"] == backend
    if backend == "fallback":
        assert done.returncode == 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_report_fits_a_terminal_and_says_what_to_do(backend: str) -> None:
    done = run(backend=backend, AIOSPIN_POLICY="no\x1b[2Jsuch", AIOSPIN_POLCY="eco")
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert all(len(line) <= 80 and line.isprintable() for line in lines), done.stdout
    for title, _ in SUBJECTS.values():
        assert title in lines
    assert "will hurt; what to do stands at the end." in lines[0]
    assert any(line.startswith("  warn  policy") for line in lines)
    assert "-> Is AIOSPIN_POLICY meant?" in done.stdout
    assert done.stderr == ""


def calm(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Only these subjects are examined."""
    kept = {name: SUBJECTS[name] for name in names}
    monkeypatch.setattr("aiospin.doctor.survey.SUBJECTS", kept)


def test_where_nothing_hurts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calm(monkeypatch, "settings", "idle")
    assert doctor.examine(Lab(tmp_path), None, False) == 0
    out = capsys.readouterr().out
    assert "nothing here will hurt." in out and "What to do" not in out
    assert doctor.examine(Lab(tmp_path, {"AIOSPIN_POLICY": "x"}), None, False) == 1
    out = capsys.readouterr().out
    assert "1 thing here will hurt" in out and "What to do (1)" in out


@pytest.mark.parametrize("as_json", [False, True])
def test_measuring_on_a_machine_with_a_meter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], as_json: bool
) -> None:
    lab = Lab(tmp_path)
    lab.write("sys/class/powercap/intel-rapl:0/name", "package-0")
    lab.write("sys/class/powercap/intel-rapl:0/energy_uj", 5)
    calm(monkeypatch, "idle")
    doctor.examine(lab, 0.05, as_json)
    captured = capsys.readouterr()
    assert captured.err.startswith("aiospin doctor: measuring nobody (1 of ")
    if as_json:
        power = json.loads(captured.out)["power"]
        assert power["meter"] == "RAPL (package-0)"
        assert {"nobody", "park", "busy poll"} <= power["modes"].keys()
        assert power["modes"]["park"]["watts"] == 0
    else:
        assert "meter: RAPL (package-0)" in captured.out and "nobody" in captured.out


@pytest.mark.parametrize("backend", BACKENDS)
def test_measuring_in_earnest(backend: str) -> None:
    done = run("--measure-power", "--seconds", 0.05, "--json", backend=backend)
    document = json.loads(done.stdout)
    assert_schema(document)
    modes = document["power"]["modes"]
    assert {"park", "busy poll"} <= modes.keys()
    assert (backend == "native") == (document["power"]["chosen"] in modes and document["power"]["chosen"] != "park")
    for mode in modes.values():
        assert mode["failure"] is None
    ours = [f"aiospin doctor: measuring {mode} ({at} of {len(modes)})\n" for at, mode in enumerate(modes, 1)]
    assert done.stderr == "".join(ours)


def test_the_folder_that_it_is_started_in_plays_no_part(tmp_path: Path) -> None:
    """A checkout's sources lie there, without the extension."""
    started_in, script = tmp_path / "here", tmp_path / "there" / "run.py"
    (started_in / "aiospin").mkdir(parents=True)
    (started_in / "aiospin" / "__init__.py").write_text("raise RuntimeError('the wrong one')")
    script.parent.mkdir()
    script.write_text("import sys\nfrom aiospin.cli import main\nif __name__ == '__main__':\n    sys.exit(main())\n")
    asked = [sys.executable, str(script), "doctor", "--measure-power", "--seconds", "0.02", "--json"]
    done = subprocess.run(asked, cwd=started_in, capture_output=True, text=True, check=False)
    assert all(mode["failure"] is None for mode in json.loads(done.stdout)["power"]["modes"].values())


def test_it_says_so_when_uvloop_is_missing() -> None:
    """Without which other subcommands cannot even be imported."""
    code = "import sys; sys.modules['uvloop'] = None; from aiospin.cli import main; sys.exit(main())"
    asked = [sys.executable, "-c", code, "doctor", "--json"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and done.stderr == ""
    assert ("software", "event_loop") in {
        (each["section"], each["fact"]) for each in json.loads(done.stdout)["warnings"]
    }


# what is asked wrongly, and ways to end


@pytest.mark.parametrize(
    "args",
    [
        ["--measure-power", "--seconds", "0"],
        ["--measure-power", "--seconds", "nan"],
        ["--measure-power", "--seconds", "601"],
        ["--measure-power", "--seconds", "soon"],
        ["--unheard-of"],
        ["stray"],
    ],
)
def test_bad_values_are_refused(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["doctor", *args])
    assert ended.value.code == 2
    assert args[-1] in capsys.readouterr().err


def test_seconds_of_nothing_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["doctor", "--seconds", "1"])
    assert ended.value.code == 2
    assert "--seconds is for --measure-power" in capsys.readouterr().err


def test_it_needs_linux(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert main(["doctor"]) == 1
    assert "aiospin doctor: it needs Linux, and this is darwin" in capsys.readouterr().err


def test_a_report_that_cannot_be_written_is_said_so() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(command(), stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "aiospin doctor: the result could not be written: No space left on device\n"


@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGKILL, -9)],
    ids=lambda each: str(each),
)
def test_a_signal_ends_it_and_its_child(number: signal.Signals, status: int) -> None:
    """Also the signal of which it never hears: its child looks after it then."""
    asked = command("--measure-power", "--seconds", 600)
    with subprocess.Popen(asked, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        assert running.stderr.readline().startswith("aiospin doctor: measuring ")
        child = os.pidfd_open(child_of(running.pid))
        os.kill(running.pid, number)
        out, err = running.communicate()
        assert select.select([child], [], [])[0] == [child]
        os.close(child)
    assert (running.returncode, out) == (status, "")
    assert err == ("aiospin: interrupted\n" if number == signal.SIGINT else "")


def child_of(pid: int) -> int:
    """Returns once there is one."""
    while not (children := Path(f"/proc/{pid}/task/{pid}/children").read_text().split()):
        continue
    return int(children[0])
