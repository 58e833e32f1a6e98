"""Build the optional native extension `aiospin._native`; everything else about the package is in pyproject.toml.

Guarantee: without a compiler, or when compiling fails, the result is a pure-Python wheel and a notice that says why.
Assumption: run by setuptools, alone or through pip. These environment variables are read (0/1):

    AIOSPIN_NO_EXTENSIONS       do not build the extension
    AIOSPIN_REQUIRE_EXTENSIONS  fail instead of building a pure-Python wheel
    AIOSPIN_DEVELOP             treat compiler warnings as errors (-Wall -Wextra -Werror)
    AIOSPIN_BUILD_JOBS          how many files to compile at once (a number; by default one per CPU)
"""

from __future__ import annotations

import importlib.util
import platform
import sys
from pathlib import Path
from typing import Any

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import BaseError, CCompilerError

ROOT = Path(__file__).resolve().parent


def load_flags() -> Any:
    """Load aiospin/_flags.py without importing the package, which needs the extension that is being built."""
    spec = importlib.util.spec_from_file_location("_aiospin_flags", ROOT / "aiospin" / "_flags.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


FLAGS = load_flags()


class NoExtension(Exception):
    """Says why there will be no native extension."""


def announce(reason: NoExtension) -> None:
    """Print that the result is pure Python. Raises SystemExit where the extension is required."""
    if FLAGS.extensions() == "required":
        raise SystemExit(f"aiospin: the native extension is required, but {reason}") from reason
    print(f"\naiospin: building WITHOUT the native extension, since {reason}.", file=sys.stderr)
    print("aiospin: the pure-Python fallback has the same API and is slower.\n", file=sys.stderr, flush=True)


class BuildExtension(build_ext):
    """build_ext after whose failure the distribution, and a wheel in the making, hold no extension and are pure."""

    def run(self) -> None:
        try:
            super().run()
        except (BaseError, CCompilerError, OSError) as error:
            announce(NoExtension(f"it could not be compiled ({error})"))
            for stale in self.get_outputs():
                Path(stale).unlink(missing_ok=True)
            self.extensions: list[Extension] = []
            self.distribution.ext_modules = []
            wheel = self.distribution.get_command_obj("bdist_wheel", create=False)
            if wheel is not None:
                wheel.root_is_pure = True


def native_extension() -> Extension:
    """Describe the extension. Raises NoExtension where it cannot be built at all."""
    if FLAGS.extensions() == "never":
        raise NoExtension(f"{FLAGS.NO_EXTENSIONS} is on")
    if sys.platform != "linux":
        raise NoExtension(f"it exists for Linux only, and this is {sys.platform}")
    if platform.python_implementation() != "CPython":
        raise NoExtension(f"it is written for CPython, and this is {platform.python_implementation()}")
    sources = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("native/**/*.cpp"))
    headers = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("native/**/*.h"))
    if not sources:
        raise NoExtension("its source files under native/ are missing")
    try:
        from pybind11.setup_helpers import ParallelCompile, Pybind11Extension
    except ImportError as error:
        raise NoExtension(f"pybind11 is missing ({error})") from error
    # Pybind11Extension adds -fvisibility=hidden and, unless CFLAGS asks for debugging, -g0.
    ParallelCompile("AIOSPIN_BUILD_JOBS").install()
    warnings = ["-Wall", "-Wextra", "-Werror"] if FLAGS.flag("AIOSPIN_DEVELOP") else []
    return Pybind11Extension(
        "aiospin._native",
        sources,
        depends=headers,
        include_dirs=["native"],
        cxx_std=20,
        extra_compile_args=["-O3", "-pthread", *warnings],
        extra_link_args=["-pthread"],
    )


def extension_modules() -> list[Extension]:
    """Return the extension, or nothing (and say why) where it cannot be built."""
    try:
        return [native_extension()]
    except NoExtension as reason:
        announce(reason)
        return []


setup(ext_modules=extension_modules(), cmdclass={"build_ext": BuildExtension})
