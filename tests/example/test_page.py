"""The example's page in a real browser: files are dropped, a worker is killed, and the page shows what happens.

Debian's chromium, headless, through Playwright. Screenshots are left in the test's own folder (see `--basetemp`).
"""

from __future__ import annotations

import importlib.util
import json
import os
import random
import re
import shutil
import signal
import struct
import zlib
from base64 import b64encode
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from running_server import PATIENCE, RunningServer, needs_the_extra, serving

if TYPE_CHECKING:
    from playwright.sync_api import Browser, FilePayload, Page

CHROMIUM = shutil.which("chromium")
pytestmark = [
    needs_the_extra,
    pytest.mark.skipif(
        CHROMIUM is None or importlib.util.find_spec("playwright") is None,
        reason="needs the chromium package and playwright",
    ),
]

# As a user's drag would: a DataTransfer with real files, dropped on the zone.
DROP = """(zone, files) => {
  const transfer = new DataTransfer();
  for (const [name, text] of Object.entries(files))
    transfer.items.add(new File([Uint8Array.from(atob(text), (char) => char.charCodeAt(0))], name));
  for (const type of ["dragenter", "dragover", "drop"])
    zone.dispatchEvent(new DragEvent(type, { bubbles: true, cancelable: true, dataTransfer: transfer }));
}"""


def png() -> bytes:
    """A picture of noise."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    side = 64
    noise = random.Random(7)
    pixels = b"".join(b"\0" + noise.randbytes(3 * side) for _ in range(side))
    head = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(pixels)) + chunk(b"IEND", b"")


def pdf() -> bytes:
    """A page with a line of text."""
    text = b"BT /F1 24 Tf 72 700 Td (Hello) Tj ET"
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R /Resources << >> >>",
        b"<< /Length %d >>\nstream\n%s\nendstream" % (len(text), text),
    ]
    body = b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n"
    offsets = []
    for number, content in enumerate(objects, 1):
        offsets.append(len(body))
        body += b"%d 0 obj\n%s\nendobj\n" % (number, content)
    table = b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    size = len(objects) + 1
    return (
        body
        + b"xref\n0 %d\n0000000000 65535 f \n%strailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n"
        % (
            size,
            table,
            size,
            len(body),
        )
    )


FILES: Mapping[str, bytes] = {
    "program.py": b"import os\n\n\nclass Thing:\n    def __init__(self) -> None:\n        self.name = os.name\n",
    "picture.png": png(),
    "paper.pdf": pdf(),
}
LABELS = {"program.py": "python", "picture.png": "png", "paper.pdf": "pdf"}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page on which nothing may go wrong in silence."""
    context = browser.new_context(
        viewport={"width": 1280, "height": 860}, color_scheme="light", reduced_motion="reduce"
    )
    context.set_default_timeout(PATIENCE * 1000)
    page = context.new_page()
    troubles: list[str] = []
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on("console", lambda said: troubles.append(said.text) if said.type in ("error", "warning") else None)
    yield page
    context.close()
    assert not [trouble for trouble in troubles if "503" not in trouble]


def drop(page: Page, files: Mapping[str, bytes]) -> None:
    zone = page.get_by_test_id("drop").element_handle()
    page.evaluate(
        f"([zone, files]) => ({DROP})(zone, files)", [zone, {n: b64encode(c).decode() for n, c in files.items()}]
    )


def choose(page: Page, files: Mapping[str, bytes]) -> None:
    page.get_by_test_id("files").set_input_files(payloads(files))


def payloads(files: Mapping[str, bytes]) -> list[FilePayload]:
    """Files as Playwright wants them."""
    kind = "application/octet-stream"
    return [{"name": name, "mimeType": kind, "buffer": content} for name, content in files.items()]


def wait_for_answers(page: Page, rows: int) -> None:
    from playwright.sync_api import TimeoutError as TimedOut

    done = """(rows) => document.querySelectorAll("[data-testid=row][data-state=done]").length === rows"""
    try:
        page.wait_for_function(done, arg=rows)
    except TimedOut:
        pytest.fail(
            f"not {rows} answers, but\n{page.get_by_test_id('summary').inner_text()}\n{page.inner_text('tbody')}"
        )


def row_of(page: Page, name: str) -> Mapping[str, str]:
    """The newest row of a file, as it reads."""
    row = page.get_by_test_id("row").filter(has_text=name).first
    return {cell: row.get_by_test_id(cell).inner_text() for cell in ("name", "label", "score", "latency", "state")}


def show(page: Page, tmp_path: Path, name: str) -> None:
    page.screenshot(path=tmp_path / f"{name}.png", full_page=True)


def workers_of(page: Page) -> list[tuple[int, str]]:
    items = page.get_by_test_id("workers").get_by_test_id("worker")
    return [(int(item.get_attribute("data-pid") or 0), str(item.get_attribute("data-state"))) for item in items.all()]


def test_three_files_a_killed_worker_and_three_more(page: Page, tmp_path: Path) -> None:
    with serving(tmp_path / "log", "--workers", "2") as server:
        page.goto(server.url)
        page.get_by_test_id("worker").first.wait_for()
        assert {state for _, state in workers_of(page)} == {"up"}
        show(page, tmp_path, "empty")

        drop(page, FILES)
        wait_for_answers(page, 3)
        for name, label in LABELS.items():
            row = row_of(page, name)
            assert (row["name"], row["label"], row["state"]) == (name, label, "done")
            assert float(row["score"].removesuffix("%")) > 50
            assert re.fullmatch(r"\d+(\.\d)? m?s", row["latency"])
        assert page.get_by_test_id("summary").inner_text() == "3 of 3 files done."
        show(page, tmp_path, "light")

        (victim, _), (other, _) = workers_of(page)
        os.kill(victim, signal.SIGKILL)
        choose(page, FILES)  # while one is gone
        page.get_by_test_id("events").get_by_text(f"(pid {victim}) died").wait_for()
        show(page, tmp_path, "killed")
        page.get_by_test_id("events").get_by_text("worker 0 is up again").wait_for()
        wait_for_answers(page, 6)
        (successor, state), (same, _) = workers_of(page)
        assert (state, same) == ("up", other)
        assert successor not in (0, victim)
        assert page.get_by_test_id("health").inner_text() == "2 workers up"

        choose(page, {"settings.json": json.dumps({"a": [1, 2, 3], "b": {"c": None}}, indent=1).encode()})
        wait_for_answers(page, 7)
        assert row_of(page, "settings.json")["label"].startswith("json")
        assert "worker 0" in (page.get_by_test_id("chart").locator("svg").get_attribute("aria-label") or "")
        show(page, tmp_path, "recovered")
        page.emulate_media(color_scheme="dark")
        show(page, tmp_path, "dark")
        page.set_viewport_size({"width": 400, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") == 400
        show(page, tmp_path, "narrow")


def test_refused_files_are_sent_again_when_the_server_says(page: Page, tmp_path: Path) -> None:
    options = ("--model", "noop:300", "--workers", "1", "--max-batch", "1", "--max-pending", "2")
    with serving(tmp_path / "log", *options) as server:
        page.goto(server.url)
        choose(page, {f"file-{n}": b"x" for n in range(5)})
        page.locator("[data-testid=row][data-state=refused]").first.wait_for()
        assert "refused" in page.locator("[data-testid=row][data-state=refused]").first.inner_text()
        show(page, tmp_path, "refused")
        wait_for_answers(page, 5)
        assert server.metric('model_server_files_total{outcome="ok"}') == 5
        assert server.metric('model_server_files_total{outcome="refused"}') >= 3


def test_the_keyboard_is_enough(page: Page, tmp_path: Path) -> None:
    with serving(tmp_path / "log", "--model", "noop", "--workers", "1") as server:
        # Before anything else: a chooser that opens before the browser has been told so would open for nobody.
        page.on("filechooser", lambda chooser: chooser.set_files(payloads({"a.txt": b"hello"})))
        page.goto(server.url)
        page.get_by_test_id("worker").first.wait_for()
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.id") == "files"
        page.keyboard.press("Enter")
        wait_for_answers(page, 1)
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.id") == "clear"
        page.keyboard.press("Enter")
        assert page.get_by_test_id("row").count() == 0


def test_a_server_that_is_gone_is_told(browser: Browser, tmp_path: Path) -> None:
    with serving(tmp_path / "log", "--model", "noop", "--workers", "1") as server, browser.new_page() as page:
        page.goto(server.url)
        page.get_by_test_id("worker").first.wait_for()
        end(server)
        page.get_by_test_id("health").get_by_text("server not reachable").wait_for()
        choose(page, {"a.txt": b"hello"})
        page.get_by_role("button", name="Try a.txt again").wait_for()
        show(page, tmp_path, "gone")


def end(server: RunningServer) -> None:
    server.process.kill()
    server.process.wait(PATIENCE)
