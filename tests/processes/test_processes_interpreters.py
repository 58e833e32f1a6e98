"""Subinterpreters are refused: by the package, by the extension alone, and without harm to the main interpreter.

The extension used to wait for ever in pybind11's own taking of the GIL. Two interpreters of one process would take each
other's roles, since the kernel gives locks to processes.
"""

from __future__ import annotations

import pytest
from programs import Program

pytestmark = pytest.mark.usefixtures("leaves_nothing")

# `run` says how a program in a new subinterpreter ended: None, or the text of its error.
PRELUDE = """
    import importlib
    interpreters = importlib.import_module("_interpreters" if sys.version_info >= (3, 13) else "_xxsubinterpreters")

    def create(kind):
        if sys.version_info >= (3, 13):
            return interpreters.create(kind, reqrefs=False)
        return interpreters.create(isolated=kind == "isolated")

    def run(kind, text):
        inner = create(kind)
        try:
            failure = interpreters.run_string(inner, text)
        except Exception as error:  # RunFailedError up to 3.12
            failure = error
        finally:
            interpreters.destroy(inner)
        return None if failure is None else getattr(failure, "formatted", None) or str(failure)
"""

KINDS = pytest.mark.parametrize("kind", ["legacy", "isolated"])


@KINDS
def test_the_package_says_why_it_cannot_be_imported(kind: str) -> None:
    program = """
    for _ in range(2):
        say(run(arguments, "import aiospin"))
    queue = aiospin.Queue(capacity=RING)
    with queue, queue.writer() as writer, queue.reader(0) as reader:
        writer.put(b"before")
        say(run(arguments, "import aiospin"))
        say(reader.get().decode())
        writer.put(b"after")
        say(reader.get().decode())
    """
    with Program(PRELUDE + program, kind) as child:
        for _ in range(3):
            said = child.hear()
            assert "ImportError" in said and "subinterpreter" in said and "roles are locks" in said, said
        assert [child.hear(), child.hear()] == ["before", "after"]
        child.finish()


@KINDS
def test_other_code_of_a_subinterpreter_goes_on(kind: str) -> None:
    """The error is an ordinary ImportError, for code that can do without."""
    program = """
    say(run(arguments, '''if True:
        try:
            import aiospin
        except ImportError:
            aiospin = None
        assert aiospin is None
    '''))
    """
    with Program(PRELUDE + program, kind) as child:
        assert child.hear() is None
        child.finish()


@pytest.mark.native
@KINDS
@pytest.mark.parametrize("backend", ["native", "fallback"])
def test_the_extension_refuses_by_itself(kind: str, backend: str) -> None:
    """Whoever loads the file without the package is refused as well, and does not wait.

    On the fallback backend it is the first time that the file comes into the process.
    """
    program = """
    from importlib.machinery import EXTENSION_SUFFIXES
    folder = os.path.dirname(aiospin.__file__)
    [path] = [path for suffix in EXTENSION_SUFFIXES if os.path.exists(path := f"{folder}/_native{suffix}")]
    say(run(arguments, f'''if True:
        from importlib.machinery import ExtensionFileLoader
        from importlib.util import module_from_spec, spec_from_file_location
        loader = ExtensionFileLoader("aiospin._native", {path!r})
        loader.exec_module(module_from_spec(spec_from_file_location("aiospin._native", {path!r}, loader=loader)))
    '''))
    """
    with Program(PRELUDE + program, kind, backend=backend) as child:
        said = child.hear()
        assert "ImportError" in said and "subinterpreter" in said, said
        child.finish()
