"""The documentation does what it says: its programs run, its links lead somewhere, and it names everything there is.

A Python block in the tutorial or the recipes is a whole program. It runs in a fresh interpreter in which warnings are
errors; when a text block follows it, that is exactly what it prints. A block below `<!-- not run: reason -->` is only
compiled.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import aiospin

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.rglob("*.md"), *ROOT.glob("*.md")])
EXAMPLES = sorted((DOCS / "examples").glob("*.py"))

NOT_RUN = re.compile(r"<!-- not run: ([^>]+?) -->\s*\Z")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@dataclass(frozen=True)
class Program:
    """A Python block of a page."""

    place: str
    code: str
    prints: str | None
    not_run: str | None


def programs(page: Path) -> Iterator[Program]:
    text = text_of(page)
    fences = list(FENCE.finditer(text))
    for fence, following in zip(fences, [*fences[1:], None], strict=False):
        if fence[1] != "python":
            continue
        excuse = NOT_RUN.search(text, 0, fence.start())
        adjacent = following is not None and not text[fence.end() : following.start()].strip()
        yield Program(
            place=f"{page.relative_to(DOCS)}:{text.count(chr(10), 0, fence.start()) + 1}",
            code=fence[2],
            prints=following[2] if following is not None and adjacent and following[1] == "text" else None,
            not_run=excuse[1] if excuse else None,
        )


PROGRAMS = [
    program
    for folder in ("tutorial", "howto")
    for page in sorted((DOCS / folder).glob("*.md"))
    for program in programs(page)
]


def run(program: Path) -> str:
    """Run it to its end, and return what it printed."""
    done = subprocess.run(
        [sys.executable, "-W", "error", program],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    return done.stdout


@pytest.mark.parametrize("program", [p for p in PROGRAMS if p.not_run is None], ids=lambda program: program.place)
def test_a_program_runs(program: Program, tmp_path: Path, leaves_nothing: object) -> None:
    path = tmp_path / "program.py"
    path.write_text(program.code, encoding="utf-8")
    printed = run(path)
    if program.prints is not None:
        assert printed == program.prints


def test_nearly_every_program_runs() -> None:
    excused = [program for program in PROGRAMS if program.not_run is not None]
    for program in excused:
        compile(program.code, program.place, "exec")
    assert len(excused) * 10 <= len(PROGRAMS)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.stem)
def test_an_example_prints_what_its_docstring_says(example: Path, leaves_nothing: object) -> None:
    docstring = ast.get_docstring(ast.parse(text_of(example)))
    assert docstring is not None
    _, found, promised = docstring.partition("It prints:\n\n")
    assert found, "an example says what it prints"
    assert run(example).split("\n") == [*(line[4:] for line in promised.split("\n")), ""]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    prose = FENCE.sub("", text_of(page))
    for target in re.findall(r"\]\(([^)\s]+)\)", prose):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        there = page if not path else (page.parent / path).resolve()
        assert there.exists(), f"{target} leads nowhere"
        if anchor:
            assert anchor in anchors(there), f"{target}: no such heading"


def anchors(page: Path) -> set[str]:
    """The names of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", text_of(page)), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_page_is_linked_from_the_map_of_its_folder() -> None:
    for page in DOCS.rglob("*"):
        if page.suffix in (".md", ".py") and page.name != "README.md":
            assert f"]({page.name}" in text_of(page.parent / "README.md"), f"{page} is on no map"


# what the reference must name

REFERENCE = "".join(text_of(page) for page in sorted((DOCS / "reference").glob("*.md")))


def members(kind: type) -> set[str]:
    return {
        name
        for base in kind.__mro__
        if base.__module__.startswith("aiospin")
        for name in vars(base)
        if not name.startswith("_")
    }


def headings_of_reference() -> set[str]:
    """What stands in code marks in headings and in the first cell of tables, without arguments."""
    named = re.findall(r"^(?:#+|\|)(.*?)(?:\||$)", REFERENCE, re.MULTILINE)
    return {re.split(r"[(:=\[ ]", code)[0] for line in named for code in re.findall(r"`([^`]+)`", line)}


@pytest.mark.parametrize("name", aiospin.__all__)
def test_a_public_name_is_in_the_reference(name: str) -> None:
    assert {name, f"aiospin.{name}"} & headings_of_reference()


@pytest.mark.parametrize(
    "kind",
    [
        aiospin.Handle,
        aiospin.Queue,
        aiospin.QueueReader,
        aiospin.QueueWriter,
        aiospin.ReadSlot,
        aiospin.Statistics,
        aiospin.WaitPolicy,
        aiospin.WaitSet,
        aiospin.WriteSlot,
    ],
    ids=lambda kind: kind.__name__,
)
def test_a_public_member_is_in_the_reference(kind: type) -> None:
    fields = set(getattr(kind, "__dataclass_fields__", ()))
    internal = {"horizon"}  # between files of the package, or of no use to callers
    missing = (members(kind) | fields) - headings_of_reference() - internal
    assert not missing


def test_every_function_of_lowlevel_and_testing_is_in_the_reference() -> None:
    import aiospin.testing

    assert {*aiospin.lowlevel.__all__, "at_stages"} <= {name.split(".")[-1] for name in headings_of_reference()}


def test_every_error_is_among_the_exceptions() -> None:
    page = text_of(DOCS / "reference" / "exceptions.md")
    errors = [name for name in aiospin.__all__ if isinstance(getattr(aiospin, name), type)]
    missing = [name for name in errors if issubclass(getattr(aiospin, name), Exception) and f"`{name}`" not in page]
    assert not missing


def test_every_environment_variable_is_documented() -> None:
    sources = [ROOT / "setup.py", *(ROOT / "aiospin").rglob("*.py"), *(ROOT / "native").rglob("*.cpp")]
    used = {name for path in sources for name in re.findall(r"\bAIOSPIN_[A-Z]\w+\b(?!\()", text_of(path))}
    page = text_of(DOCS / "reference" / "environment.md")
    assert not {name for name in used if f"`{name}`" not in page}


def test_every_command_and_option_is_documented() -> None:
    page = text_of(DOCS / "reference" / "command-line.md")
    for command in commands():
        assert f"`aiospin {command}" in page
        for option in re.findall(r"^  (?:-h, )?(--\w[\w-]*)", help_of(command), re.MULTILINE):
            assert f"`{option}" in page or option == "--help", f"aiospin {command} {option}"


def commands() -> list[str]:
    return re.findall(r"^    (\w+) ", help_of(), re.MULTILINE)


def help_of(*command: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "aiospin", *command, "--help"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "COLUMNS": "120", "NO_COLOR": "1"},
    )
    return done.stdout


# what the explanations must name


def test_every_file_is_on_the_tour() -> None:
    tour = text_of(DOCS / "explanation" / "tour.md")
    files = [*(ROOT / "aiospin").rglob("*.py"), *(ROOT / "native").rglob("*.h"), *(ROOT / "native").rglob("*.cpp")]
    native = {f"{path.parent.name}/{path.stem}" for path in files if path.suffix != ".py"}
    python = {
        f"{path.parent.name}/{path.stem}" if path.parent.name != "aiospin" else path.stem
        for path in files
        if path.suffix == ".py"
    }
    missing = sorted(name for name in native | python if not on_tour(name, tour))
    assert not missing


def on_tour(name: str, tour: str) -> bool:
    """In code marks, either whole or by its last part in the table of its folder."""
    folder, _, leaf = name.rpartition("/")
    section = tour
    if folder:
        parts = re.split(rf"^#+ .*`[\w/]*{folder}/`.*$", tour, maxsplit=1, flags=re.MULTILINE)
        assert len(parts) == 2, f"{folder}/ has no heading on the tour"
        section = re.split(r"^#+ ", parts[1], maxsplit=1, flags=re.MULTILINE)[0]
    return f"`{leaf}`" in section


def test_the_tour_names_nothing_that_is_gone() -> None:
    tour = text_of(DOCS / "explanation" / "tour.md")
    cells = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", tour, re.MULTILINE)
    stems = {path.stem for folder in ("aiospin", "native") for path in (ROOT / folder).rglob("*") if path.is_file()}
    assert not {name for cell in cells for name in re.findall(r"`(\w+)`", cell)} - stems


WORDS = """
    abort acquire cursor claim doorbell epoch fragment gate handle horizon inline journal ladder lag lease monitor park
    publish rank reader release ring role rung segment slot successor tenure token watch writer
""".split()


@pytest.mark.parametrize("word", WORDS)
def test_a_word_is_in_the_glossary(word: str) -> None:
    assert re.search(rf"^\*\*{word}\b", text_of(DOCS / "reference" / "glossary.md"), re.MULTILINE)
