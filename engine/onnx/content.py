"""Content of a model: hashes of its file and of its external weight files, computed without importing ``onnx``.

The names of the external files are parsed from the protobuf (:mod:`engine.onnx.wire`), skipping fields by their length,
so that internal weights are not read. Most models have no external file, which is detected while hashing: the word
``location`` does not occur in them.
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
_MOST_MODEL = 2**31  # maximum size of a protobuf message in bytes
_DEEPEST = 64  # maximum nesting of graphs that is followed; deeper models are rejected when opened

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
"""Fields of ONNX messages that lead to a tensor's ``external_data`` (onnx.proto)."""


class ModelContent(NamedTuple):
    """Contents of a model file and of its external ones by name in the model, sorted (``None``: unreadable)."""

    model: Content
    external: Mapping[str, Content | None]

    @property
    def sha256(self) -> str:
        """Hash of all files; for a single file, the hash of the file."""
        if not self.external:
            return self.model.sha256
        digest = hashlib.sha256(self.model.sha256.encode())
        for name, content in self.external.items():
            digest.update(f"\n{name!r} {content.sha256 if content else 'unreadable'}".encode())
        return digest.hexdigest()


def model_content(path: Path) -> ModelContent:
    """Return the content of a model, with cached hashes of unchanged files; raise OSError if it is unreadable."""
    model = content_of(path, _WORD)
    names = external_names(path) if model.found and model.stamp.size <= _MOST_MODEL else []
    return ModelContent(model, {name: _external(path, name) for name in names})


def _external(path: Path, name: str) -> Content | None:
    try:
        return content_of(path.parent / name)
    except OSError:
        return None  # reported by the engine that opens the model


def external_names(path: Path) -> list[str]:
    """Return the sorted names of the weight files of a model, none if it is not ONNX; raise OSError if unreadable."""
    source = BytesSource(read_regular(path))
    return sorted(set(_names(source, 0, len(source.content), "model", 0)))


def _names(source: BytesSource, start: int, end: int, kind: str, depth: int) -> Iterator[str]:
    """Yield the values of ``location`` in a message of this kind; stop at invalid protobuf."""
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
