"""The example's server over HTTP: its contract, and what it does when it is full, late, left alone, hurt or to end."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from running_server import EXAMPLES, RunningServer, is_gone, needs_the_extra, serving, until

pytestmark = needs_the_extra

PYTHON = b"import os\n\n\nclass Thing:\n    def __init__(self) -> None:\n        self.name = os.name\n"
JSON = json.dumps({"name": "x", "items": list(range(40)), "nested": {"on": True}}, indent=2).encode()
FOREVER = "noop:3600000"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """One with the real model, for what leaves no trace."""
    log = tmp_path_factory.mktemp("server") / "log"
    options = ("--workers", "2", "--max-upload-mib", "1", "--max-files", "5")
    with serving(log, *options) as running:
        yield running
        assert running.terminate() == 0
    assert log.read_text("utf-8") == ""


# the contract


def test_one_file(server: RunningServer) -> None:
    answer = server.predict(PYTHON, "?name=thing.py")
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    fields = answer.json
    assert {**fields, "score": 0, "worker": 0, "latency_ms": 0} == {
        "name": "thing.py",
        "label": "python",
        "description": "Python source",
        "mime": "text/x-python",
        "group": "code",
        "score": 0,
        "worker": 0,
        "batch": 1,
        "latency_ms": 0,
    }
    assert 0.5 < fields["score"] <= 1
    assert fields["worker"] in (0, 1)
    assert fields["latency_ms"] > 0


def test_an_empty_file(server: RunningServer) -> None:
    assert server.predict(b"").json["label"] == "empty"


def test_many_files(server: RunningServer) -> None:
    files = {"a.py": PYTHON, "b.json": JSON, "c": b"", "d.bin": bytes(range(256)) * 1200}
    answer = server.job(files)
    assert (answer.status, answer.headers["content-type"].split(";")[0]) == (200, "text/event-stream")
    *told, (last, summary) = answer.events
    assert last == "done"
    assert summary["files"] == 4 and summary["seconds"] > 0
    assert {event for event, _ in told} == {"file"}
    assert sorted((fields["index"], fields["name"]) for _, fields in told) == list(enumerate(files))
    labels = {fields["name"]: fields["label"] for _, fields in told}
    assert (labels["a.py"], labels["b.json"], labels["c"]) == ("python", "json", "empty")
    keys = "index name label description mime group score worker batch latency_ms"
    assert all(set(fields) == set(keys.split()) for _, fields in told)


def test_the_page_needs_nothing_from_elsewhere(server: RunningServer) -> None:
    page = server.ask("GET", "/")
    assert (page.status, page.headers["content-security-policy"]) == (200, "default-src 'self'")
    parts = re.findall(r'(?:src|href)="([^"]+)"', page.body.decode())
    assert {"/static/page.js", "/static/page.css"} <= set(parts)
    for part in [*parts, "/static/chart.js", "/static/jobs.js"]:
        found = server.ask("GET", part)
        assert found.status == 200
        assert not re.findall(rb"https?://(?!www\.w3\.org/2000/svg)", found.body)


def test_health(server: RunningServer) -> None:
    health = server.health()
    assert (health.status, health.json["status"]) == (200, "ok")
    assert [(worker["rank"], worker["state"]) for worker in health.json["workers"]] == [(0, "up"), (1, "up")]


def test_metrics_count(server: RunningServer) -> None:
    before = server.metric('model_server_files_total{outcome="ok"}')
    server.predict(PYTHON)
    assert server.metric('model_server_files_total{outcome="ok"}') == before + 1
    answer = server.ask("GET", "/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    text = answer.body.decode()
    names = re.findall(r"^# TYPE (\S+) (?:counter|gauge|histogram)$", text, re.MULTILINE)
    assert len(names) == len(set(names))
    sample = re.compile(r'([a-z_]+)(?:\{(?:[a-z]+="[^"\n]*",?)+\})? [-+.e0-9]+')
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        found = sample.fullmatch(line)
        assert found is not None, line
        assert re.sub("_(bucket|sum|count)$", "", found[1]) in names or found[1] in names
    assert server.metric("model_server_latency_seconds_count") >= 1
    assert server.metric("model_server_batch_files_count") >= 1
    assert server.metric('model_server_worker_cpu_seconds_total{rank="0"}') > 0


def test_live_samples_come_by_themselves(server: RunningServer) -> None:
    with contextlib.closing(server.connect()) as connection:
        connection.request("GET", "/live")
        response = connection.getresponse()
        lines = [response.readline() for _ in range(4)]
    samples = [json.loads(line.removeprefix(b"data: ")) for line in lines if line.strip()]
    assert len(samples) == 2
    for sample in samples:
        assert set(sample) == {"latency", "requests_per_second", "pending", "workers"}
        assert set(sample["latency"]) == {"p50_ms", "p99_ms"}
        assert [worker["state"] for worker in sample["workers"]] == ["up", "up"]
        assert all(worker["cpu_percent"] >= 0 and worker["pid"] > 0 for worker in sample["workers"])


# bad input

LONG = "n" * 300


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("?deadline_ms=soon", "'soon'"),
        ("?deadline_ms=0", "'0'"),
        ("?deadline_ms=-5", "'-5'"),
        ("?deadline_ms=nan", "'nan'"),
        ("?deadline_ms=60001", "at most 60000, got '60001'"),
        (f"?name={LONG}", "got 300"),
    ],
)
def test_a_wrong_parameter_is_named(server: RunningServer, query: str, named: str) -> None:
    answer = server.predict(PYTHON, query)
    assert answer.status == 400
    assert named in answer.json["error"]


def test_a_wrong_header_is_named(server: RunningServer) -> None:
    answer = server.predict(PYTHON, **{"X-Deadline-Ms": "1e99"})
    assert answer.status == 400
    assert "'1e99'" in answer.json["error"]


def test_a_wrong_job_is_told_what_is_wrong(server: RunningServer) -> None:
    plain = server.ask("POST", "/jobs", b"x", {"Content-Type": "text/plain"})
    assert (plain.status, plain.json["error"]) == (400, "content-type must be multipart/form-data, got 'text/plain'")
    assert "no file" in server.job({}).json["error"]
    unbounded = server.ask("POST", "/jobs", b"x", {"Content-Type": "multipart/form-data"})
    assert (unbounded.status, "boundary" in unbounded.json["error"].lower()) == (400, True)
    many = server.job({f"file-{n}": b"x" for n in range(6)})
    assert (many.status, "5" in many.json["error"]) == (400, True)


@pytest.mark.parametrize("path", ["/predict", "/jobs"])
def test_too_long_an_upload_is_refused(server: RunningServer, path: str) -> None:
    headers = {"Content-Type": "multipart/form-data; boundary=x"}
    announced = server.ask("POST", path, b"x" * (1 << 20 | 1), headers)
    assert (announced.status, announced.json["error"]) == (
        413,
        "a request may have 1048576 bytes, this one has 1048577",
    )


def test_too_long_an_upload_of_unknown_length_is_refused(server: RunningServer) -> None:
    with contextlib.closing(server.connect()) as connection:
        connection.putrequest("POST", "/predict")
        connection.putheader("Transfer-Encoding", "chunked")
        connection.endheaders()
        chunk = b"%x\r\n%s\r\n" % (1 << 18, b"x" * (1 << 18))
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it has seen enough
            for _ in range(5):
                connection.send(chunk)
            connection.send(b"0\r\n\r\n")
        response = connection.getresponse()
        assert (response.status, b"has more" in response.read()) == (413, True)


def test_what_does_not_exist(server: RunningServer) -> None:
    assert server.ask("GET", "/nowhere").json == {"error": "Not Found", "status": 404}
    assert server.ask("GET", "/predict").status == 405
    assert server.ask("GET", "/static/../app.py").status == 404


# under stress


@contextlib.contextmanager
def asking(server: RunningServer, path: str = "/predict") -> Iterator[http.client.HTTPConnection]:
    """A request under way; leaving goes away without the answer."""
    with contextlib.closing(server.connect()) as connection:
        connection.request("POST", path, PYTHON)
        yield connection


def test_full_late_and_left_alone(tmp_path: Path) -> None:
    with serving(tmp_path / "log", "--model", FOREVER, "--workers", "1", "--max-pending", "2") as server:

        def pending(files: int) -> Callable[[], bool]:
            return lambda: server.metric("model_server_pending_files") == files

        worker = server.pids()[0]
        with asking(server), contextlib.ExitStack() as second:
            second.enter_context(asking(server))
            until(pending(2), "two files wait")
            for refused in (server.predict(PYTHON, "?name=third"), server.job({"third": PYTHON})):
                assert refused.status == 503
                assert int(refused.headers["retry-after"]) == refused.json["retry_after"] >= 1
                assert refused.json["error"] == "2 files are waiting already"
            second.close()
            until(pending(1), "the second client's file is given up")
            late = server.predict(PYTHON, "?name=late", **{"X-Deadline-Ms": "50"})
            assert (late.status, late.json["name"]) == (504, "late")
            assert "no answer within" in late.json["error"]
            *late_job, (event, _) = server.ask(
                "POST",
                "/jobs?deadline_ms=50",
                b'--x\r\nContent-Disposition: form-data; name="f"; filename="a"\r\n\r\nx\r\n--x--\r\n',
                {"Content-Type": "multipart/form-data; boundary=x"},
            ).events
            assert event == "done"
            assert [(name, fields["status"]) for name, fields in late_job] == [("failed", 504)]
        until(pending(0), "the first client's file is given up")
        for outcome, files in (("refused", 1), ("late", 2), ("cancelled", 2)):
            assert server.metric(f'model_server_files_total{{outcome="{outcome}"}}') == files
        server.process.kill()
        until(lambda: is_gone(worker), "the worker ends with its server, busy or not")


def test_a_job_that_does_not_fit_is_refused_in_part(tmp_path: Path) -> None:
    options = ("--model", "noop:200", "--workers", "1", "--max-pending", "3", "--max-batch", "1")
    with serving(tmp_path / "log", *options) as server:
        *told, (last, summary) = server.job({f"file-{n}": b"x" for n in range(5)}).events
    assert (last, summary["files"]) == ("done", 5)
    assert sorted(fields["index"] for _, fields in told) == list(range(5))
    refused = [fields for event, fields in told if event == "failed"]
    assert [(fields["status"], fields["retry_after"] >= 1) for fields in refused] == [(503, True)] * 2


def test_a_worker_that_dies_is_replaced_and_nothing_is_lost(tmp_path: Path) -> None:
    with serving(tmp_path / "log", "--model", "noop:20", "--workers", "2", "--max-batch", "2") as server:
        before = server.pids()
        with ThreadPoolExecutor(8) as clients:
            answers = [clients.submit(server.predict, b"x", f"?name={n}") for n in range(100)]
            answers[10].result()
            os.kill(before[0], signal.SIGKILL)
            found = [answer.result() for answer in answers]
        assert [(answer.status, answer.json["name"]) for answer in found] == [(200, str(n)) for n in range(100)]

        def recovered() -> bool:
            health = server.health().json["workers"][0]
            return bool(health["state"] == "up" and health["pid"] not in (0, before[0]) and health["restarts"] == 1)

        until(recovered, "the worker has a successor")
        assert server.health().status == 200
        assert server.metric('model_server_worker_restarts_total{rank="0"}') == 1
        assert f"(pid {before[0]}) was killed by SIGKILL" in (tmp_path / "log").read_text("utf-8")


# the end


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_what_is_under_way_is_finished(tmp_path: Path, sent: signal.Signals) -> None:
    with serving(tmp_path / "log", "--model", "noop:700", "--workers", "1") as server:
        worker = server.pids()[0]
        with contextlib.closing(server.connect()) as live, asking(server) as connection:
            live.request("GET", "/live")
            stream = live.getresponse()
            until(lambda: server.metric("model_server_pending_files") == 1, "the file waits")
            server.process.send_signal(sent)
            response = connection.getresponse()
            assert (response.status, json.loads(response.read())["label"]) == (200, "noop")
            assert stream.read().endswith(b"\n\n")  # it ends, and not in the middle
        assert server.process.wait(60) == 0
        assert is_gone(worker)
        with pytest.raises(ConnectionRefusedError):
            server.health()
    assert (tmp_path / "log").read_text("utf-8") == ""


def test_several_server_processes_share_a_port(tmp_path: Path) -> None:
    options = ("--model", "noop", "--server-processes", "2", "--workers", "1")
    with serving(tmp_path / "log", *options) as server:
        seen: set[int] = set()

        def both() -> bool:
            seen.update(server.pids())
            return len(seen) == 2

        until(both, "both have answered")
        assert server.predict(b"x").status == 200
        assert server.terminate() == 0
        assert all(is_gone(pid) for pid in seen)


# starting


def what_it_says(tmp_path: Path, *options: str) -> str:
    """Of a server that does not come up."""
    with pytest.raises(AssertionError), serving(tmp_path / "log", *options):
        pass
    return (tmp_path / "log").read_text("utf-8")


@pytest.mark.parametrize(
    ("option", "value"),
    [("--workers", "0"), ("--max-batch", "0"), ("--model", "gpt"), ("--port", "70000"), ("--server-processes", "0")],
)
def test_a_wrong_option_is_named(tmp_path: Path, option: str, value: str) -> None:
    said = what_it_says(tmp_path, option, value)
    assert f"got {value}" in said or f"got {value!r}" in said
    assert "Traceback" not in said


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = what_it_says(tmp_path, "--model", "noop", "--port", str(port))
    assert said.startswith(f"model_server: cannot listen at 127.0.0.1:{port}: ")


def test_every_file_is_on_the_map() -> None:
    text = (EXAMPLES / "model_server" / "README.md").read_text("utf-8")
    files = [path for path in (EXAMPLES / "model_server").rglob("*") if path.suffix in (".py", ".js", ".css", ".html")]
    assert not [path.name for path in files if f"`{path.name}`" not in text and f"[{path.name}]" not in text]
