"""Files whose type is beyond doubt, made from the standard library so that none need be kept."""

from __future__ import annotations

import io
import json
import sysconfig
import tarfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path


@dataclass(frozen=True)
class Sample:
    name: str
    content: bytes
    label: str


def _zip(content: bytes) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("library/argparse.txt", content)
    return made.getvalue()


def _tar(content: bytes) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        entry = tarfile.TarInfo("library/argparse.txt")
        entry.size = len(content)
        archive.addfile(entry, io.BytesIO(content))
    return made.getvalue()


def _html(content: str) -> bytes:
    page = "<!DOCTYPE html>\n<html lang='en'>\n<head><meta charset='utf-8'><title>Listing</title></head>\n<body>\n"
    return f"{page}<h1>Listing</h1>\n<p>{content[:2000]}</p>\n</body>\n</html>\n".encode()


def real_samples() -> Sequence[Sample]:
    """Between one and a hundred kilobytes each, with the label that Magika gives such files."""
    python = Path(sysconfig.get_path("stdlib"), "argparse.py").read_bytes()
    settings = {f"setting_{number}": {"value": number, "names": ["a", "b"], "on": True} for number in range(60)}
    return (
        Sample("python.bin", python, "python"),
        Sample("json.bin", json.dumps(settings, indent=2).encode(), "json"),
        Sample("html.bin", _html("A page of plain words, and nothing else on it. " * 40), "html"),
        Sample("zip.bin", _zip(python), "zip"),
        Sample("tar.bin", _tar(python), "tar"),
    )


def samples_for(model: str) -> Sequence[Sample]:
    """Those with the labels that this model of the example gives."""
    if model == "magika":
        return real_samples()
    return [replace(sample, label="noop") for sample in real_samples()]
