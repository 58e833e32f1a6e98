"""The example's server as a process of its own, and a client for it that needs nothing but the standard library.

Guarantee: leaving the `with` ends the server, however the test went; nothing of it is left.
"""

from __future__ import annotations

import contextlib
import http.client
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"
PATIENCE = 60.0  # seconds after which what was to come is taken to be missing

_MISSING = [
    name
    for name in ("magika", "msgspec", "onnxruntime", "python_multipart", "starlette", "uvicorn")
    if importlib.util.find_spec(name) is None
]
needs_the_extra = pytest.mark.skipif(bool(_MISSING), reason="needs the extra [example]")


def importable() -> None:
    """Let tests import `model_server`."""
    if str(EXAMPLES) not in sys.path:
        sys.path.append(str(EXAMPLES))


@dataclass(frozen=True)
class Answer:
    """A response, read to its end."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def events(self) -> list[tuple[str, Any]]:
        """Server-sent events: name and fields of each."""
        found = re.findall(r"(?:event: (\w+)\n)?data: (.*)\n\n", self.body.decode())
        return [(name, json.loads(fields)) for name, fields in found]


class RunningServer:
    """Started by `serving`."""

    def __init__(self, process: subprocess.Popen[str], url: str) -> None:
        self.process = process
        self.url = url
        self._place = re.sub(r"^http://|/$", "", url)

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self._place, timeout=PATIENCE)

    def ask(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        with contextlib.closing(self.connect()) as connection:
            connection.request(method, path, body, dict(headers or {}))
            response = connection.getresponse()
            return Answer(response.status, dict(response.getheaders()), response.read())

    def predict(self, content: bytes, query: str = "", **headers: str) -> Answer:
        return self.ask("POST", f"/predict{query}", content, headers)

    def job(self, files: Mapping[str, bytes]) -> Answer:
        body = b"".join(
            b'--=_=\r\nContent-Disposition: form-data; name="files"; filename="%s"\r\n\r\n%s\r\n'
            % (name.encode(), content)
            for name, content in files.items()
        )
        return self.ask("POST", "/jobs", body + b"--=_=--\r\n", {"Content-Type": "multipart/form-data; boundary==_="})

    def health(self) -> Answer:
        return self.ask("GET", "/healthz")

    def pids(self) -> list[int]:
        return [worker["pid"] for worker in self.health().json["workers"]]

    def metric(self, sample: str) -> float:
        """The value of one line of /metrics; 0 where there is none yet."""
        text = self.ask("GET", "/metrics").body.decode()
        found = re.search(rf"^{re.escape(sample)} (\S+)$", text, re.MULTILINE)
        return float(found[1]) if found else 0.0

    def terminate(self) -> int:
        """SIGTERM, and the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE)


@contextlib.contextmanager
def serving(log: Path, *options: str) -> Iterator[RunningServer]:
    """A server on a free port of the loopback interface, once it answers. `log` gets its stderr."""
    with open(log, "w", encoding="utf-8") as stderr:
        process = subprocess.Popen(
            [sys.executable, str(EXAMPLES / "model_server"), "--port", "0", *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )
    assert process.stdout is not None
    try:
        welcome = process.stdout.readline()
        found = re.search(r"http://\S+", welcome)
        assert found is not None, f"{welcome!r}, and {log.read_text('utf-8')}"
        yield RunningServer(process, found[0])
    finally:
        process.terminate()
        try:
            process.wait(PATIENCE)
        finally:
            process.kill()
            process.wait()
            process.stdout.close()


def until(condition: Callable[[], bool], what: str) -> None:
    """Return as soon as the condition holds; fail when it does not in PATIENCE seconds."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"not within {PATIENCE} s: {what}"


def is_gone(pid: int) -> bool:
    """Whether there is no such process any more."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stat:
        return stat.read().rpartition(")")[2].split()[0] == "Z"
