"""The example's model gives the answers of the magika package, for files of any shape, in batches of any size."""

from __future__ import annotations

import random
import sysconfig
import zlib
from pathlib import Path
from typing import Any

import pytest
from running_server import importable, needs_the_extra

importable()

from model_server.model import make_model  # noqa: E402

BLOCK = 4096  # of what the network is shown, from either end
ODD = [
    b"",
    b"a",
    b"\xff",
    b"1234567",
    b"12345678",
    b" " * 9,
    b"\n\t \r\n" * 4000,
    b" " * BLOCK + b"print('beyond the first block')\n",
    b" " * (BLOCK - 4) + b"only",
    b"\r\n" * 50 + b"import os\n\n\ndef main():\n    print(os.name)\n" + b" " * 5000,
    "é".encode() * 5000,
    b" " * (BLOCK - 1) + "é".encode(),  # the block ends inside a character
    b"\0" * 10000,
    random.Random(1).randbytes(20000),
    b'{"a": [1, 2, {"b": null}], "c": "d"}',
    b"<!doctype html><html><head><title>x</title></head><body><p>y</p></body></html>",
    b"%PDF-1.4\n1 0 obj<</Type/Catalog>>endobj\ntrailer<</Root 1 0 R>>\n%%EOF\n",
    b"\x1f\x8b\x08\0\0\0\0\0\0\x03" + zlib.compress(b"hello" * 100),
]


def sources() -> list[bytes]:
    """Some of what any Python brings along, shared objects too."""
    library = Path(sysconfig.get_path("stdlib"))
    paths = [*sorted(library.glob("*.py"))[::10], *sorted(library.glob("lib-dynload/*.so"))[::10]]
    return [path.read_bytes() for path in paths]


@needs_the_extra
def test_labels_and_scores_are_those_of_the_package() -> None:
    from magika import Magika

    package, model = Magika(), make_model("magika")
    files = [*ODD, *sources()]
    expected = [package.identify_bytes(file) for file in files]
    found: list[Any] = []
    for start in range(0, len(files), 7):
        _, rows = model.predict(*[memoryview(file) for file in files[start : start + 7]])
        found += rows
    for file, one, row in zip(files, expected, found, strict=True):
        told = one.output
        assert row[:4] == (str(told.label), told.description, told.mime_type, told.group), file[:40]
        assert row[4] == pytest.approx(one.score, abs=0.02)  # sums in another order


@needs_the_extra
def test_a_batch_does_not_depend_on_its_order() -> None:
    model = make_model("magika")
    _, forward = model.predict(*ODD)
    _, backward = model.predict(*reversed(ODD))
    assert [row[0] for row in forward] == [row[0] for row in reversed(backward)]
    assert model.predict()[1] == []


@pytest.mark.parametrize("name", ["", "noop:", "noop:x", "noop:-1", "Magika", "magika:1"])
def test_an_unknown_model_is_named(name: str) -> None:
    with pytest.raises(ValueError, match=repr(name)):
        make_model(name)


def test_the_model_that_does_nothing() -> None:
    pid, rows = make_model("noop").predict(b"a", b"b")
    assert pid > 0
    assert [row[0] for row in rows] == ["noop", "noop"]
