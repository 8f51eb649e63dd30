"""Which content a model has: its file, and the files beside it that hold weights, found without importing ``onnx``.

The names of those files are read from the protobuf itself (:mod:`engine.onnx.wire`): fields are skipped by their
lengths, so that a model's own weights cost nothing. Most models name no file, which is seen while
the model is hashed: the word ``location`` is not in it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from engine.onnx.wire import BytesSource, fields
from tecoinfer_modelzoo.content import Content, content_of
from tecoinfer_modelzoo.files import read_regular

_WORD = b"location"

_MOST_MODEL = 2**31
"""Bytes of a protobuf message at most."""

_DEEPEST = 64
"""Levels of graphs in graphs that are followed; a model with more is refused when it is opened."""

_FIELDS: Mapping[str, Mapping[int, str]] = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "training": {1: "graph", 2: "graph"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "function": {7: "node", 11: "attribute"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
    "tensor": {13: "entry"},
}
"""Which fields of ONNX's messages lead to a tensor's ``external_data`` (onnx.proto)."""


class ModelContent(NamedTuple):
    """What a model was read from.

    Attributes:
        model: the model's file. external: files of weights by the names that the model gives them, sorted; ``None`` for
            one that cannot be read.
    """

    model: Content
    external: Mapping[str, Content | None]

    @property
    def sha256(self) -> str:
        """The hash of all of it; of a model in one file the file's own."""
        if not self.external:
            return self.model.sha256
        digest = hashlib.sha256(self.model.sha256.encode())
        for name, content in self.external.items():
            digest.update(f"\n{name!r} {content.sha256 if content else 'unreadable'}".encode())
        return digest.hexdigest()


def model_content(path: Path) -> ModelContent:
    """Return which content a model has now; what is known by its file's stamp is not read again.

    Raises:
        OSError: the model's file cannot be read.
    """
    model = content_of(path, _WORD)
    names = external_names(path) if model.found and model.stamp.size <= _MOST_MODEL else []
    return ModelContent(model, {name: _external(path, name) for name in names})


def _external(path: Path, name: str) -> Content | None:
    try:
        return content_of(path.parent / name)
    except OSError:
        return None  # the engine that opens the model names it


def external_names(path: Path) -> list[str]:
    """Return the files of weights that a model names, sorted; none where the file is no ONNX.

    Raises:
        OSError: the file cannot be read.
    """
    source = BytesSource(read_regular(path))
    return sorted(set(_names(source, 0, len(source.content), "model", 0)))


def _names(source: BytesSource, start: int, end: int, kind: str, depth: int) -> Iterator[str]:
    """Yield the values of ``location`` in a message of this kind; what is no protobuf ends it."""
    if depth > _DEEPEST * len(_FIELDS):
        return
    inner = _FIELDS[kind]
    for field in fields(source, start, end):
        if field.number not in inner or not field.end:
            continue
        if inner[field.number] != "entry":
            yield from _names(source, field.start, field.end, inner[field.number], depth + 1)
            continue
        parts = fields(source, field.start, field.end)
        entry = {part.number: source.content[part.start : part.end] for part in parts}
        if entry.get(1) == _WORD:
            yield entry.get(2, b"").decode("utf-8", "surrogateescape")
