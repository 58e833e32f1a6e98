"""A virtual environment with everything that the comparison runs on, made once and used again: build/peers/.

    environment.prepare(root)    # -> Environment: its Python, and the folder that holds what was taken of vLLM

Guarantee: nothing is fetched twice; what changed in the checkout is built again; the native extension is in it or this
raises. All of it is under build/, which git ignores. vLLM itself is never installed: a few files of its wheel are kept.
Assumption: pip finds its packages, a C++ compiler is there. Where pip would take a torch for GPUs, PIP_EXTRA_INDEX_URL
can point it to one for CPUs.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import theirs

VLLM = "0.33.0"
REQUIREMENTS = (
    *("torch==2.13.0", "numpy", "pyzmq", "psutil", "regex", "urllib3"),  # what theirs imports
    *("uvloop", "setuptools>=77", "wheel", "pybind11>=3"),  # what ours imports, and is built with
)
SOURCES = ("aiospin", "native", "setup.py", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE")


@dataclass(frozen=True)
class Environment:
    """Where the comparison runs."""

    python: Path
    vllm: Path


def announce(text: str) -> None:
    """Say what takes long, beside the table."""
    print(f"peers: {text}", file=sys.stderr, flush=True)


def run(root: Path, *command: str | Path, **variables: str) -> None:
    """Run an installing step, again if it was the network. Raises SystemExit with its output's end if it fails."""
    retry = [sys.executable, str(root / ".ci" / "retry.py"), "--"]
    done = subprocess.run(
        [*retry, *map(str, command)],
        cwd=root,
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"peers: {' '.join(map(str, command))} failed:\n{done.stdout[-3000:]}")


def digest(texts: Iterable[bytes]) -> str:
    """Return a name for these contents."""
    total = hashlib.sha256()
    for text in texts:
        total.update(hashlib.sha256(text).digest())
    return total.hexdigest()


def is_done(mark: Path, contents: str) -> bool:
    """Return whether a step left `mark` with these contents."""
    return mark.is_file() and mark.read_text(encoding="ascii") == contents


def sources(root: Path) -> list[Path]:
    """Return the files of the checkout that a wheel is made of, relative to it."""
    found: list[Path] = []
    for name in SOURCES:
        path = root / name
        found += path.rglob("*") if path.is_dir() else [path]
    return sorted(
        path.relative_to(root)
        for path in found
        if path.is_file() and path.suffix not in (".so", ".pyc") and "__pycache__" not in path.parts
    )


def make_python(root: Path, folder: Path) -> Path:
    """Return the Python of a virtual environment that has REQUIREMENTS."""
    place = folder / f"python{sys.version_info[0]}.{sys.version_info[1]}"
    python = place / "bin" / "python"
    mark = place / "requirements"
    if not is_done(mark, "\n".join(REQUIREMENTS)):
        announce(f"installing {', '.join(REQUIREMENTS)}")
        shutil.rmtree(place, ignore_errors=True)
        run(root, sys.executable, "-m", "venv", place)
        run(root, python, "-m", "pip", "install", "--disable-pip-version-check", *REQUIREMENTS)
        mark.write_text("\n".join(REQUIREMENTS), encoding="ascii")
    return python


def install_aiospin(root: Path, python: Path) -> None:
    """Build the checkout as it is now, from a copy of its own: stale files of earlier builds are not in it."""
    files = sources(root)
    wanted = digest(part for path in files for part in (str(path).encode(), (root / path).read_bytes()))
    place = python.parent.parent
    if is_done(place / "aiospin", wanted):
        return
    announce("building aiospin")
    copy = place / "source"
    for name in ("aiospin", "native"):
        shutil.rmtree(copy / name, ignore_errors=True)
    for built in copy.glob("build/lib*"):  # the object files stay: only what changed is compiled
        shutil.rmtree(built)
    for path in files:
        (copy / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(root / path, copy / path)
    options = ("--disable-pip-version-check", "--no-deps", "--no-build-isolation", "--force-reinstall")
    run(root, python, "-m", "pip", "install", *options, copy, AIOSPIN_REQUIRE_EXTENSIONS="1")
    (place / "aiospin").write_text(wanted, encoding="ascii")


def fetch_vllm(root: Path, folder: Path, python: Path) -> Path:
    """Return the folder with what `theirs` loads of vLLM's wheel, and with the empty libraries that it is linked to."""
    place = folder / f"vllm-{VLLM}"
    wanted = "\n".join((*theirs.REAL, *theirs.NEEDLESS))
    if is_done(place / "files", wanted):
        return place
    announce(f"fetching vLLM {VLLM}'s wheel, some 340 MB, for {len(theirs.REAL)} files of it")
    shutil.rmtree(place, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as wheels:
        options = ("--disable-pip-version-check", "--no-deps", "--only-binary", ":all:", "--dest", wheels)
        run(root, python, "-m", "pip", "download", *options, f"vllm=={VLLM}")
        (wheel,) = Path(wheels).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            for name in theirs.REAL:
                archive.extract(name, place)
    for library in theirs.NEEDLESS:
        compiler = os.environ.get("CC", "cc")
        run(root, compiler, "-shared", "-xc", os.devnull, "-o", place / library, f"-Wl,-soname,{library}")
    (place / "files").write_text(wanted, encoding="ascii")
    return place


def prepare(root: Path, *, theirs_too: bool = True) -> Environment:
    """Make what is missing of the environment. Raises SystemExit that says what failed. Without `theirs_too` nothing is
    fetched of vLLM, and theirs cannot be played.
    """
    if platform.system() != "Linux":
        raise SystemExit(f"peers: the comparison runs on Linux, this is {platform.system()}")
    folder = root / "build" / "peers"
    python = make_python(root, folder)
    install_aiospin(root, python)
    return Environment(python, fetch_vllm(root, folder, python) if theirs_too else folder)
