"""Saved engines: ``<model>.tecoengine``, the model as a SPA runs it and a description of its sources.

One line of text (format version, size and hash of the manifest), the manifest (JSON), and the model (ONNX with shapes
bound, passes applied and floats in the card's storage). Nothing in it is executed or unpacked. The hashes detect
accidental changes; they are not a signature, so every value is read with a type check. Times are not stored: they
follow from the kernels and the current description of the card. This module does not need the ``onnx`` package.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache
from math import prod
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from engine.base import ConfigError, EngineSpec, ModelError, TensorSpec
from engine.built import MAGIC, SUFFIX, is_built
from engine.sdaa.cost import ShardWork
from engine.sdaa.kernels import Kernel
from engine.sdaa.lower import MADE_OF
from engine.signature import (
    BatchAxes,
    Dim,
    axis_from_json,
    dim_from_json,
    dtype_from_json,
    sizes_of,
    symbols_of,
    tensor_from_json,
    tensor_to_json,
)
from tecoinfer_modelzoo.files import hash_files, open_regular, write_file
from tecoinfer_modelzoo.json_types import Problems, entries, flag, items, number, parsed, text, whole

if TYPE_CHECKING:
    from onnx import ModelProto

SCHEMA_VERSION = 2  # of header and manifest; incremented when a field changes its meaning, is added or removed
MAX_MANIFEST = 2**26  # size limit of a manifest in bytes; ResNet50's has 30 KB
MAX_MODEL = 2**31 - 2**24  # size limit of a saved model in bytes: protobuf messages are limited to 2 GiB

MOST_PER_COPIED = 8
"""Limit of an input's stored bytes per byte copied to the card: usually 1; 2 if a float32 input is kept."""

_HEADER = re.compile(rb"tecoengine (\d{1,6}) (\d{1,9}) ([0-9a-f]{64})\n")
_HEADER_BYTES = 128
T = TypeVar("T")
_AGAIN = "save it again from the ONNX file (tecoexec/save_engine.py)"


@dataclass(frozen=True)
class Origin:
    """The sources of an engine."""

    source: str  # name of the ONNX file
    source_sha256: str  # of it and its external data
    external: tuple[str, ...]  # names of the latter
    pass_file: str  # name of the pass file, or empty
    pass_sha256: str  # of its text, or empty; imports from outside the zoo are not included
    dtype: str  # ``"float16"`` or ``"float32"``
    versions: Mapping[str, str]  # of the zoo and the packages used; ``sources`` is a hash of the zoo's files used

    @classmethod
    def of(cls, spec: EngineSpec, dtype: str) -> Origin:
        """Return the sources for ``spec``; raise ModelError if the ONNX file or one it names is missing or damaged."""
        from engine.onnx.load import external_files

        external = tuple(external_files(spec.ckpt))
        return cls(
            source=spec.ckpt.name,
            source_sha256=_source_hash(spec.ckpt, external),
            external=external,
            pass_file=spec.pass_path.name if spec.pass_path else "",
            pass_sha256=_pass_hash(spec.pass_path),
            dtype=dtype,
            versions=lowering_versions(),
        )

    def check(self, spec: EngineSpec, dtype: str) -> None:
        """Raise ModelError, with the difference, for other sources than ``spec``; an ONNX file is always hashed.

        If ``spec`` names a saved engine, sources are not compared, and the pass only if ``spec`` names one.
        """
        path, now = saved_path(spec.ckpt), lowering_versions()
        for name in sorted({*now, *self.versions}):
            _same(path, f"version of {name}", self.versions.get(name, "none"), now.get(name, "none"))
        _same(path, "dtype", self.dtype, dtype)
        by_itself = spec.ckpt == path
        if spec.pass_path is not None or not by_itself:
            _same(path, "pass", self.pass_file or "none", spec.pass_path.name if spec.pass_path else "none")
            _unchanged(path, self.pass_file, self.pass_sha256, _pass_hash(spec.pass_path))
        if not by_itself:
            _unchanged(path, self.source, self.source_sha256, _source_hash(spec.ckpt, self.external))


@dataclass(frozen=True)
class Saved:
    """The manifest."""

    origin: Origin  # the sources
    card: str  # name of the card's description when saving; another card may run it
    card_sha256: str  # hash of that description
    shard_size: int  # samples of a shard
    shapes: dict[str, tuple[int, ...]]  # of every input of a shard
    batch_axes: dict[str, int | None]  # the batch axis of each, or null
    independent: bool | None  # whether samples are independent; null: unknown
    reason: str  # why not
    dims: dict[str, list[Dim]]  # the inputs' declared shapes in the ONNX file, dynamic dimensions by their symbol
    dtypes: dict[str, str]  # of the inputs as stored, in the model's order
    outputs: list[TensorSpec]  # as stored
    metadata: dict[str, str]  # the ONNX file's
    layout: str  # of the data
    converted: bool  # whether floats are stored in the origin's dtype
    work: ShardWork  # of a SPA for one shard
    model_bytes: int = 0  # of the model after the manifest
    model_sha256: str = ""  # of the model after the manifest

    @property
    def inputs(self) -> list[TensorSpec]:
        """The inputs as stored, with the declared shapes of the ONNX file."""
        return [
            TensorSpec(
                name, np.dtype(kind), sizes_of(self.dims[name]), self.batch_axes[name], symbols_of(self.dims[name])
            )
            for name, kind in self.dtypes.items()
        ]

    @property
    def batching(self) -> BatchAxes:
        """Batch axes and independence, in the model's order."""
        inputs = tuple(self.batch_axes[name] for name in self.dtypes)
        return BatchAxes(inputs, tuple(t.batch_axis for t in self.outputs), self.independent, self.reason)

    def complete(self, spec: EngineSpec, spa_count: int) -> EngineSpec:
        """Set what a spec of the saved engine itself may leave open: the shapes and the batch."""
        names = spec.input_name if sorted(spec.input_name) == sorted(self.shapes) else list(self.dtypes)
        sizes = spec.input_size or tuple(self.shapes[name] for name in names)
        shards = 1 if self.independent is False else spa_count
        return replace(spec, input_size=sizes, batch_size=self.shard_size * shards)

    def check_shapes(
        self, ckpt: Path, size: int, shapes: Mapping[str, tuple[int, ...]], axes: Mapping[str, int | None]
    ) -> None:
        """Raise ModelError, with the difference, for another shard: other samples, input shapes, or batch axes."""
        path = saved_path(ckpt)
        _same(path, "input shapes", _shapes_text(self.shapes), _shapes_text(shapes))
        _same(path, "batch axes", self.batch_axes, dict(axes))
        _same(path, "shard size", self.shard_size, size)

    def check_model(self, ckpt: Path, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> None:
        """Raise ModelError if a model, of ``ckpt`` or beside it, lacks the tensors of the manifest, in order."""
        stored = [(name, kind) for name, kind in self.dtypes.items()]
        shapes = [self.shapes.get(tensor.name, ()) for tensor in inputs]
        same = stored == [(tensor.name, tensor.dtype.name) for tensor in inputs] and all(
            len(tensor.shape) == len(shape) and all(a in (None, b) for a, b in zip(tensor.shape, shape, strict=True))
            for tensor, shape in zip(inputs, shapes, strict=True)
        )
        if not same or [(t.name, t.dtype) for t in self.outputs] != [(t.name, t.dtype) for t in outputs]:
            raise _damaged(saved_path(ckpt))


def saved_path(ckpt: Path) -> Path:
    """Return the path of a model's saved engine: ``digits.onnx`` -> ``digits.tecoengine``; itself if it is one."""
    return ckpt if is_built(ckpt) else ckpt.with_suffix(SUFFIX)


# --------------------------------------------------------------------------------------------------------------- write


def write_saved(path: Path, saved: Saved, model: ModelProto | bytes) -> None:
    """Write a saved engine (size and hash of the model are set here); an existing file survives an error.

    Raise ConfigError if the model is too large, or the file cannot be written.
    """
    data = model if isinstance(model, bytes) else _serialised(path, model)
    saved = replace(saved, model_bytes=len(data), model_sha256=hashlib.sha256(data).hexdigest())
    manifest = json.dumps(_to_json(saved)).encode() + b"\n"
    header = f"tecoengine {SCHEMA_VERSION} {len(manifest)} {hashlib.sha256(manifest).hexdigest()}\n".encode()
    try:
        write_file(path, header, manifest, data)
    except OSError as error:
        raise ConfigError(
            f"saved engine {path} cannot be written: {error.strerror}; free space or choose another folder "
            "(a file that was there is unchanged)"
        ) from error


def _serialised(path: Path, model: ModelProto) -> bytes:
    from engine.onnx.large import message_bytes

    size = message_bytes(model)
    if size > MAX_MODEL:
        raise ConfigError(f"saved engine {path} cannot be written: the model has {size} bytes, {MAX_MODEL} is the most")
    return bytes(model.SerializeToString())


def _to_json(saved: Saved) -> dict[str, Any]:
    plain = asdict(saved) | {"outputs": [tensor_to_json(tensor) for tensor in saved.outputs]}
    return {"schema_version": SCHEMA_VERSION, **plain}


# ---------------------------------------------------------------------------------------------------------------- read


def read_saved(path: Path) -> Saved:
    """Read the manifest, without the model after it; raise ModelError if missing, damaged, or of another version."""
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            start = file.read(_HEADER_BYTES)
            offset, length, digest = _header(path, start)
            file.seek(offset)
            manifest = file.read(length)
    except OSError as error:
        raise _unreadable(path, error) from error
    if hashlib.sha256(manifest).hexdigest() != digest:
        raise _damaged(path)
    try:
        saved = _from_json(parsed(manifest))
    except Problems as error:
        raise _damaged(path) from error
    if size != offset + length + saved.model_bytes:
        raise _damaged(path)
    return saved


def read_model(path: Path, saved: Saved) -> bytes:
    """Read the model after the manifest; raise ModelError if it is not the model of the manifest."""
    try:
        with open_regular(path) as file:
            file.seek(-saved.model_bytes, 2)
            model = file.read(saved.model_bytes)
    except OSError as error:
        raise _unreadable(path, error) from error
    if hashlib.sha256(model).hexdigest() != saved.model_sha256:
        raise _damaged(path)
    return model


def _header(path: Path, start: bytes) -> tuple[int, int, str]:
    if path.suffix != SUFFIX and not start.startswith(MAGIC):
        raise ModelError(
            f"{path} is not an engine of target sdaa (a plan of TensorRT is for target cuda); save one with "
            "tecoexec/save_engine.py, or open the ONNX file"
        )
    match = _HEADER.match(start)
    if match is None or int(match[2]) > MAX_MANIFEST:
        raise _damaged(path)
    if int(match[1]) != SCHEMA_VERSION:
        raise ModelError(
            f"saved engine {path} has format version {int(match[1])}, this zoo reads {SCHEMA_VERSION}; {_AGAIN}"
        )
    return match.end(), int(match[2]), match[3].decode()


def _unreadable(path: Path, error: OSError) -> ModelError:
    return ModelError(f"saved engine {path} cannot be read: {error.strerror}; check the path")


def _damaged(path: Path) -> ModelError:
    return ModelError(f"saved engine {path} is damaged: truncated, or changed after it was written; {_AGAIN}")


def _from_json(data: Any) -> Saved:
    """Read a manifest; values of a wrong type and invalid sizes raise an error."""
    found = _fields(Saved, data, ("schema_version",))
    shapes = {name: tuple(map(whole, items(shape))) for name, shape in entries(found["shapes"]).items()}
    axes = entries(found["batch_axes"])
    saved = Saved(
        origin=_origin(found["origin"]),
        card=text(found["card"]),
        card_sha256=text(found["card_sha256"]),
        shard_size=whole(found["shard_size"], 1),
        shapes=shapes,
        batch_axes={name: axis_from_json(axes[name], len(shape)) for name, shape in shapes.items()},
        independent=None if found["independent"] is None else flag(found["independent"]),
        reason=text(found["reason"]),
        dims={name: [dim_from_json(dim) for dim in items(shape)] for name, shape in entries(found["dims"]).items()},
        dtypes={name: dtype_from_json(kind).name for name, kind in entries(found["dtypes"]).items()},
        outputs=[tensor_from_json(entry) for entry in items(found["outputs"])],
        metadata={name: text(value) for name, value in entries(found["metadata"]).items()},
        layout=text(found["layout"]),
        converted=flag(found["converted"]),
        work=_parse(ShardWork, found["work"]),
        model_bytes=whole(found["model_bytes"], 0, MAX_MODEL),
        model_sha256=text(found["model_sha256"]),
    )
    _check_tensors(saved)
    return saved


def _origin(data: Any) -> Origin:
    found: dict[str, Any] = _fields(Origin, data)
    found["external"] = tuple(_beside(text(name)) for name in items(found["external"]))
    found["versions"] = {name: text(version) for name, version in entries(found["versions"]).items()}
    for name in found.keys() - {"external", "versions"}:
        text(found[name])
    return Origin(**found)


def _fields(kind: type[Any], data: Any, more: Sequence[str] = ()) -> dict[str, Any]:
    """Return the values of an object with the fields of a dataclass, ``more`` keys, and no others."""
    names = {field.name for field in fields(kind)}
    if set(entries(data)) != names.union(more):
        raise KeyError(kind.__name__)
    return {name: data[name] for name in names}


def _check_tensors(saved: Saved) -> None:
    """Refuse inputs that are described inconsistently, or that are larger than the copied bytes."""
    names = set(saved.dtypes)
    if not names or names != set(saved.shapes) or names != set(saved.dims) or not saved.outputs:
        raise ValueError("the inputs, their shapes and their dtypes have different names")
    for name, shape in saved.shapes.items():
        both = list(zip(saved.dims[name], shape, strict=True))
        if any(isinstance(dim, int) and dim != size for dim, size in both):
            raise ValueError("a shape differs from the declared one")
    sizes = sum(prod(shape) * np.dtype(saved.dtypes[name]).itemsize for name, shape in saved.shapes.items())
    if sizes > MOST_PER_COPIED * saved.work.bytes_in:
        raise ValueError("the inputs are larger than the copied bytes")


def _parse(kind: type[T], entry: Any) -> T:
    found = _fields(kind, entry)
    return kind(**{field.name: _READERS[str(field.type)](found[field.name]) for field in fields(kind)})  # type: ignore[arg-type]


_READERS: dict[str, Callable[[Any], Any]] = {
    "bool": flag,
    "int": whole,
    "float": number,
    "str": text,
    "tuple[str, ...]": lambda names: tuple(map(text, items(names))),
    "tuple[Kernel, ...]": lambda kernels: tuple(_parse(Kernel, kernel) for kernel in items(kernels)),
}


def _beside(name: str) -> str:
    """Refuse the name of a file that is not in the model's folder."""
    if PurePath(name).is_absolute() or ".." in PurePath(name).parts:
        raise ValueError(f"{name!r} is not beside the model")
    return name


# ------------------------------------------------------------------------------------------------------------- compare


def _same(path: Path, what: str, have: object, want: object) -> None:
    if have != want:
        raise ModelError(
            f"saved engine {path} does not fit: {what} was {have}, now {want}; request the former, or {_AGAIN}"
        )


def _unchanged(path: Path, name: str, have: str, want: str) -> None:
    if have != want:
        raise ModelError(f"saved engine {path} does not fit: {name} was changed; {_AGAIN}")


def _shapes_text(shapes: Mapping[str, tuple[int, ...]]) -> str:
    return ", ".join(f"{name} {'x'.join(map(str, shape)) or 'scalar'}" for name, shape in sorted(shapes.items()))


def _source_hash(source: Path, external: tuple[str, ...]) -> str:
    try:
        return hash_files(source, *(source.parent / name for name in external))
    except OSError as error:
        raise ModelError(f"{error.filename or source} cannot be read: {error.strerror}") from error


def _pass_hash(path: Path | None) -> str:
    return hash_files(path) if path else ""


_COMPONENTS = ("zoo", "onnx", "onnxruntime", "onnxscript")


@lru_cache(maxsize=1)
def lowering_versions() -> Mapping[str, str]:
    """Return the versions that determine the contents of a saved engine."""
    from engine.host.installed import components

    found = components()
    return {name: found[name] or "none" for name in _COMPONENTS} | {"sources": hash_files(*sources())[:12]}


def sources() -> list[Path]:
    """Return the zoo's files that determine a saved engine: those of :data:`engine.sdaa.lower.MADE_OF`."""
    root = Path(__file__).resolve().parents[2]
    return [file for name in MADE_OF for file in _files(root.joinpath(*name.split(".")))]


def _files(module: Path) -> list[Path]:
    return sorted(module.rglob("*.py")) if module.is_dir() else [module.with_suffix(".py")]
