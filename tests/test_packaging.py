"""What is installed, with and without the extension, and how an import copes when the extension does not load."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import textwrap
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
PARTS = ("aiospin", "native", "tests", "docs", ".ci")
FLAGS = ("AIOSPIN_NO_EXTENSIONS", "AIOSPIN_REQUIRE_EXTENSIONS", "AIOSPIN_DEVELOP")


def environment(**change: str) -> dict[str, str]:
    """Return this process's environment without flags of ours but those given."""
    return {name: value for name, value in os.environ.items() if name not in FLAGS} | change


# ---- wheels and the source distribution


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the project as a clone would have it, with nothing built."""
    copy = tmp_path / "aiospin"
    built = shutil.ignore_patterns("__pycache__", "*.so", "*.egg-info", ".pytest_cache", ".*_cache")
    for part in PARTS:
        if (ROOT / part).exists():
            shutil.copytree(ROOT / part, copy / part, ignore=built)
    for path in ROOT.iterdir():
        if path.is_file():
            shutil.copy(path, copy)
    return copy


def setup(tree: Path, *arguments: str, **change: str) -> subprocess.CompletedProcess[str]:
    """Run setup.py in `tree` and return what it printed."""
    return subprocess.run(
        [sys.executable, "-W", "ignore", "setup.py", *arguments],
        cwd=tree,
        env=environment(**change),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def wheel(tree: Path) -> tuple[str, list[str]]:
    """Return the name of the one wheel in `tree`, and the names in it."""
    (path,) = (tree / "dist").glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        return path.name, archive.namelist()


def assert_pure(tree: Path) -> None:
    name, contents = wheel(tree)
    assert name.endswith("-py3-none-any.whl")
    assert not [entry for entry in contents if entry.endswith((".so", ".cpp", ".h"))]
    assert {entry.split("/")[0].split("-")[0] for entry in contents} == {"aiospin"}
    expected = {f"aiospin/{name}" for name in ("__init__.py", "py.typed", "_native.pyi", "_fallback/__init__.py")}
    assert expected <= set(contents)


def test_the_wheel_is_pure_when_extensions_are_off(tree: Path) -> None:
    done = setup(tree, "-q", "bdist_wheel", AIOSPIN_NO_EXTENSIONS="1")
    assert done.returncode == 0, done.stderr
    assert "building WITHOUT the native extension, since AIOSPIN_NO_EXTENSIONS is on" in done.stderr
    assert_pure(tree)


@pytest.mark.parametrize("compiler", ["false", "no-such-compiler"])
def test_the_wheel_is_pure_when_nothing_compiles(tree: Path, compiler: str) -> None:
    done = setup(tree, "-q", "bdist_wheel", CC=compiler, CXX=compiler)
    assert done.returncode == 0, done.stderr
    assert "building WITHOUT the native extension, since it could not be compiled" in done.stderr
    assert_pure(tree)


def test_a_required_extension_that_does_not_compile_is_an_error(tree: Path) -> None:
    done = setup(tree, "-q", "bdist_wheel", CC="false", CXX="false", AIOSPIN_REQUIRE_EXTENSIONS="1")
    assert done.returncode != 0
    assert "the native extension is required, but it could not be compiled" in done.stderr
    assert not list(tree.glob("dist/*.whl"))


def test_an_extension_of_before_does_not_survive_a_failed_build(tree: Path) -> None:
    first = setup(tree, "-q", "build_py", AIOSPIN_NO_EXTENSIONS="1")
    assert first.returncode == 0, first.stderr
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    (library,) = {Path(tree, "build", f"lib.{sysconfig.get_platform()}-{sys.implementation.cache_tag}")}
    stale = library / "aiospin" / f"_native{suffix}"
    stale.parent.mkdir(parents=True, exist_ok=True)
    stale.write_bytes(b"of yesterday")
    os.utime(stale, (0, 0))
    done = setup(tree, "-q", "bdist_wheel", CC="false", CXX="false")
    assert done.returncode == 0, done.stderr
    assert_pure(tree)


@pytest.mark.parametrize("name", FLAGS)
def test_a_flag_that_is_neither_on_nor_off_is_refused(tree: Path, name: str) -> None:
    done = setup(tree, "--name", **{name: "maybe"})
    assert done.returncode != 0
    assert f"{name}='maybe' is neither on" in done.stderr


def test_the_source_distribution_is_complete(tree: Path) -> None:
    done = setup(tree, "-q", "sdist", AIOSPIN_NO_EXTENSIONS="1")
    assert done.returncode == 0, done.stderr
    (path,) = (tree / "dist").glob("*.tar.gz")
    with tarfile.open(path) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {
        path.relative_to(tree).as_posix()
        for part in PARTS
        for path in (tree / part).rglob("*")
        if path.is_file() and "aiospin.egg-info" not in path.parts
    }
    wanted |= {"CHANGELOG.md", "LICENSE", "MANIFEST.in", "README.md", "pyproject.toml", "setup.py"}
    assert not wanted - packed


# ---- importing

# Runs in a process of its own: makes the extension's import fail in a given way, then reports what came of it.
IMPORTER = """
import importlib.abc, json, logging, sys

kind = sys.argv[1]


class Sabotage(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == "aiospin._native" and kind == "KeyboardInterrupt":
            raise ImportError("initialization failed") from KeyboardInterrupt()
        if name == "aiospin._native" and kind != "none":
            raise {"ImportError": ImportError, "OSError": OSError, "ValueError": ValueError}[kind]("the reason why")
        return None


records = []


class Keep(logging.Handler):
    def emit(self, record):
        live = [value for value in vars(record).values() if isinstance(value, BaseException)]
        records.append({
            "level": record.levelname,
            "text": record.getMessage(),
            "kept": bool(live or record.exc_info or record.args),
        })


logging.getLogger("aiospin").addHandler(Keep())
sys.meta_path.insert(0, Sabotage())
try:
    import aiospin
except (ImportError, OSError, ValueError, KeyboardInterrupt) as error:
    print(json.dumps({"raised": type(error).__name__, "text": str(error), "records": records}))
else:
    print(json.dumps({"backend": aiospin.backend, "records": records, "modules": sorted(sys.modules)}))
"""


def import_aiospin(kind: str, **change: str) -> dict[str, Any]:
    """Import aiospin in a fresh process whose extension fails with `kind`, and return the report."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(IMPORTER), kind],
        env=environment(**change),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


@pytest.mark.parametrize("kind", ["ImportError", "OSError"])
def test_an_extension_that_does_not_load_falls_back(kind: str) -> None:
    assert import_aiospin(kind)["backend"] == "fallback"


@pytest.mark.parametrize("kind", ["ImportError", "OSError"])
def test_falling_back_is_logged_once_with_the_reason(kind: str) -> None:
    (record,) = import_aiospin(kind)["records"]
    assert record["level"] == "WARNING"
    assert "the reason why" in record["text"] and "fallback" in record["text"]
    assert not record["kept"], "a log record must not keep an exception alive"


def test_any_other_failure_of_the_extension_propagates() -> None:
    report = import_aiospin("ValueError")
    assert (report["raised"], report["text"]) == ("ValueError", "the reason why")
    assert report["records"] == []


def test_ctrl_c_while_the_extension_sets_itself_up_is_no_reason_to_go_on_without_it() -> None:
    report = import_aiospin("KeyboardInterrupt")
    assert (report["raised"], report["records"]) == ("KeyboardInterrupt", [])


@pytest.mark.parametrize("kind", ["ImportError", "OSError"])
def test_a_required_extension_that_does_not_load_is_an_error(kind: str) -> None:
    report = import_aiospin(kind, AIOSPIN_REQUIRE_EXTENSIONS="1")
    assert (report["raised"], report["text"]) == (kind, "the reason why")
    assert report["records"] == []


def test_the_fallback_by_choice_is_silent() -> None:
    """Not even tried: an extension that would fail in any way does no harm."""
    report = import_aiospin("ValueError", AIOSPIN_NO_EXTENSIONS="1")
    assert (report["backend"], report["records"]) == ("fallback", [])


@pytest.mark.native
def test_the_extension_is_used_where_it_loads() -> None:
    report = import_aiospin("none")
    assert (report["backend"], report["records"]) == ("native", [])


def test_contradicting_flags_are_refused_at_import() -> None:
    report = import_aiospin("none", AIOSPIN_NO_EXTENSIONS="1", AIOSPIN_REQUIRE_EXTENSIONS="1")
    assert report["raised"] == "ValueError"


def test_importing_pulls_in_nothing_heavy() -> None:
    modules = set(import_aiospin("none", AIOSPIN_NO_EXTENSIONS="1")["modules"])
    assert not modules & {"uvloop", "multiprocessing", "msgspec", "numpy", "pickle", "hypothesis", "aiospin.cli"}


# ---- the flags themselves


def flags() -> Any:
    from aiospin import _flags

    return _flags


@pytest.mark.parametrize(
    ("value", "meaning"),
    [(None, False), ("", False), ("0", False), ("1", True), ("true", True), ("YES", True), ("on", True)],
)
def test_a_flag_is_on_or_off(value: str | None, meaning: bool) -> None:
    environ: Mapping[str, str] = {} if value is None else {"AIOSPIN_X": value}
    assert flags().flag("AIOSPIN_X", environ) is meaning


@pytest.mark.parametrize("value", ["2", "off", "no", "false", " ", "1 ", "maybe"])
def test_a_flag_that_could_mean_anything_names_itself(value: str) -> None:
    with pytest.raises(ValueError, match=f"AIOSPIN_X={value!r}"):
        flags().flag("AIOSPIN_X", {"AIOSPIN_X": value})


@pytest.mark.parametrize(
    ("environ", "meaning"),
    [
        ({}, "optional"),
        ({"AIOSPIN_NO_EXTENSIONS": "1"}, "never"),
        ({"AIOSPIN_REQUIRE_EXTENSIONS": "1"}, "required"),
        ({"AIOSPIN_NO_EXTENSIONS": "0", "AIOSPIN_REQUIRE_EXTENSIONS": "1"}, "required"),
    ],
)
def test_flags_say_what_is_wanted_of_the_extension(environ: dict[str, str], meaning: str) -> None:
    assert flags().extensions(environ) == meaning
