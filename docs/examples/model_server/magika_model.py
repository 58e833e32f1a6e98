"""Magika on batches: N files in one run of the network.

The `magika` package looks at bytes in memory one at a time (`identify_bytes`), with as many threads as there are cores.
A worker wants the opposite: many at once, on the one core that is its share. So this reads the model and its
configuration from the package's wheel, prepares the input as the configuration says, and runs onnxruntime itself. No
private method of the package is called.

What the network sees of a file: the first and the last `beg_size` and `end_size` bytes of its outer blocks without the
white space around them, and a padding token where there are fewer. A file too short for that is text if it is UTF-8.

Guarantee: `predict` gives the labels that `Magika().identify_bytes` gives (tests/example/test_magika_model.py).
Assumption: the wheel holds one model, of the input layout of version 3; anything else is refused at construction.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import magika
import numpy as np
import onnxruntime  # type: ignore[import-untyped]

from model_server.model import Row

Bytes = memoryview | bytes


class MagikaModel:
    """The network, loaded, with one thread."""

    def __init__(self) -> None:
        package = Path(magika.__file__).parent
        folders = [path.parent for path in (package / "models").glob("*/model.onnx")]
        if len(folders) != 1:
            raise RuntimeError(f"magika's wheel should hold one model, found {sorted(map(str, folders))}")
        config: dict[str, Any] = json.loads((folders[0] / "config.min.json").read_text("utf-8"))
        if config["mid_size"] or config["use_inputs_at_offsets"] or config["version_major"] != 3:
            raise RuntimeError(f"the model in {folders[0]} wants another input than this file prepares")
        self._beg_size: int = config["beg_size"]
        self._end_size: int = config["end_size"]
        self._block_size: int = config["block_size"]
        self._padding: int = config["padding_token"]
        self._shortest: int = config["min_file_size_for_dl"]
        self._labels: list[str] = config["target_labels_space"]
        self._overwrite: dict[str, str] = config["overwrite_map"]
        self._thresholds: dict[str, float] = config["thresholds"]
        self._threshold: float = config["medium_confidence_threshold"]
        known = json.loads((package / "config" / "content_types_kb.min.json").read_text("utf-8"))
        self._types: dict[str, tuple[str, str, str]] = {label: _describe(label, of) for label, of in known.items()}
        self._is_text: dict[str, bool] = {label: of["is_text"] for label, of in known.items()}
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(
            str(folders[0] / "model.onnx"), options, providers=["CPUExecutionProvider"]
        )

    def predict(self, *files: Bytes) -> tuple[int, Sequence[Row]]:
        """One row for each file, and the pid of this process."""
        windows = np.full((len(files), self._beg_size + self._end_size), self._padding, np.int32)
        seen = [self._look(file, window) for file, window in zip(files, windows, strict=True)]
        rows = [self._row(self._short_label(file), 1.0) for file in files]
        if any(seen):
            (scores,) = self._session.run(["target_label"], {"bytes": windows[seen]})
            best = scores.argmax(axis=1)
            certain = scores[range(len(best)), best]
            for at, label, score in zip(np.flatnonzero(seen), best, certain, strict=True):
                rows[at] = self._row(self._trusted(self._labels[label], float(score)), float(score))
        return os.getpid(), rows

    def _look(self, file: Bytes, window: Any) -> bool:
        """Fill in what the network sees. False if that is too little to ask it."""
        begin = bytes(file[: self._block_size]).lstrip()[: self._beg_size]
        if len(file) < self._shortest or len(begin) < self._shortest:
            return False
        end = bytes(file[-self._block_size :]).rstrip()[-self._end_size :]
        window[: len(begin)] = np.frombuffer(begin, np.uint8)
        window[len(window) - len(end) :] = np.frombuffer(end, np.uint8)
        return True

    def _short_label(self, file: Bytes) -> str:
        if len(file) == 0:
            return "empty"
        try:
            str(file[: self._block_size], "utf-8")
        except UnicodeDecodeError:
            return "unknown"
        return "txt"

    def _trusted(self, label: str, score: float) -> str:
        """The label to tell: the network's own only if it is certain enough of it."""
        told = self._overwrite.get(label, label)
        if score >= self._thresholds.get(label, self._threshold):
            return told
        return "txt" if self._is_text[told] else "unknown"

    def _row(self, label: str, score: float) -> Row:
        return (label, *self._types[label], score)


def _describe(label: str, known: dict[str, Any]) -> tuple[str, str, str]:
    """Description, MIME type and group, with what holds where the knowledge base says nothing."""
    mime = known["mime_type"] or ("text/plain" if known["is_text"] else "application/octet-stream")
    return known["description"] or label, mime, known["group"] or "unknown"
