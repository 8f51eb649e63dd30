"""Saved engines: ``<model>.tecoengine``, what a SPA runs together with what it was made from.

One line of text (format version, size and hash of the manifest), the manifest (JSON), and the model (ONNX with shapes
bound, passes applied and floats in the card's storage). Nothing in it is executed or unpacked. Times are not in it:
they follow from the kernels and the card's description of the moment. Nothing here needs the ``onnx`` package.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from engine.base import ConfigError, EngineSpec, ModelError, TensorSpec
from engine.built import MAGIC, SUFFIX, is_built
from engine.host.files import hash_files, write_file
from engine.sdaa.cost import ShardWork
from engine.sdaa.kernels import Kernel
from engine.sdaa.lower import MADE_OF
from engine.signature import BatchAxes, Dim, axis_from_json, sizes_of, symbols_of, tensor_from_json, tensor_to_json

if TYPE_CHECKING:
    from onnx import ModelProto

SCHEMA_VERSION = 2
"""Of header and manifest; it rises when a field changes its meaning, comes or goes."""

MAX_MANIFEST = 2**26
"""Largest manifest that is read, in bytes; ResNet50's has 30 KB."""

MAX_MODEL = 2**31 - 2**24
"""Largest model that is saved, in bytes: a protobuf message ends at 2 GiB."""

_HEADER = re.compile(rb"tecoengine (\d{1,6}) (\d{1,9}) ([0-9a-f]{64})\n")
_HEADER_BYTES = 128

_COMPONENTS = ("zoo", "onnx", "onnxruntime", "onnxscript")

T = TypeVar("T")

_AGAIN = "save it again from the ONNX file (tecoexec/save_engine.py)"


@dataclass(frozen=True)
class Origin:
    """What an engine was made from.

    Attributes:
        source: name of the ONNX file. source_sha256: of it and its external data. external: names of the latter.
        pass_file: name of the pass file, or empty. pass_sha256: of its text, or empty; what it imports from elsewhere
            than the zoo is not looked at.
        dtype: ``"float16"`` or ``"float32"``.
        versions: of the zoo and the packages that took part; ``sources`` is a hash of the zoo's files that did.
    """

    source: str
    source_sha256: str
    external: tuple[str, ...]
    pass_file: str
    pass_sha256: str
    dtype: str
    versions: Mapping[str, str]

    @classmethod
    def of(cls, spec: EngineSpec, dtype: str) -> Origin:
        """Describe what building for ``spec`` starts from now.

        Raises:
            ModelError: the ONNX file or a file it names is missing or damaged.
        """
        from engine.onnx.load import external_files

        external = tuple(external_files(spec.ckpt))
        return cls(
            source=spec.ckpt.name,
            source_sha256=_source_hash(spec.ckpt, external),
            external=external,
            pass_file=spec.pass_path.name if spec.pass_path else "",
            pass_sha256=_pass_hash(spec.pass_path),
            dtype=dtype,
            versions=versions(),
        )

    def check(self, spec: EngineSpec, dtype: str) -> None:
        """Refuse an engine that building for ``spec`` would not give again; an ONNX file is always read and hashed.

        Where ``spec`` names a saved engine there is no source to compare, and a pass only where it names one.

        Raises:
            ModelError: it says what differs.
        """
        path, now = saved_path(spec.ckpt), versions()
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
    """The manifest.

    Attributes:
        origin: what it was made from.
        card, card_sha256: name and hash of the card's description at the time; another card may run it.
        shard_size: samples of a shard. shapes: of every input of a shard. batch_axes: the batch axis of each, or null.
        independent: whether samples depend on themselves alone; null: not known. reason: why not.
        dims: the inputs' shapes as the ONNX file declares them, dynamic dimensions by their symbol.
        dtypes: of the inputs as stored, in the model's order. outputs: as stored.
        metadata: the ONNX file's. layout: of the data. converted: whether floats are stored in the origin's dtype.
        work: what a SPA does for one shard.
        model_bytes, model_sha256: of the model behind the manifest.
    """

    origin: Origin
    card: str
    card_sha256: str
    shard_size: int
    shapes: dict[str, tuple[int, ...]]
    batch_axes: dict[str, int | None]
    independent: bool | None
    reason: str
    dims: dict[str, list[Dim]]
    dtypes: dict[str, str]
    outputs: list[TensorSpec]
    metadata: dict[str, str]
    layout: str
    converted: bool
    work: ShardWork
    model_bytes: int = 0
    model_sha256: str = ""

    @property
    def inputs(self) -> list[TensorSpec]:
        """The inputs as stored, with the shapes the ONNX file declares."""
        return [
            TensorSpec(
                name,
                np.dtype(kind),
                sizes_of(self.dims[name]),
                self.batch_axes[name],
                symbols_of(self.dims[name]),
            )
            for name, kind in self.dtypes.items()
        ]

    @property
    def batching(self) -> BatchAxes:
        """What was known of the batch, in the model's order."""
        inputs = tuple(self.batch_axes[name] for name in self.dtypes)
        return BatchAxes(inputs, tuple(t.batch_axis for t in self.outputs), self.independent, self.reason)

    def complete(self, spec: EngineSpec, spa_count: int) -> EngineSpec:
        """Fill in what a spec that names the saved engine itself may leave open: the shapes and the batch."""
        names = spec.input_name if sorted(spec.input_name) == sorted(self.shapes) else list(self.dtypes)
        sizes = spec.input_size or tuple(self.shapes[name] for name in names)
        shards = 1 if self.independent is False else spa_count
        return replace(spec, input_size=sizes, batch_size=self.shard_size * shards)

    def check_shapes(
        self, ckpt: Path, size: int, shapes: Mapping[str, tuple[int, ...]], axes: Mapping[str, int | None]
    ) -> None:
        """Refuse an engine for another shard: its number of samples, its inputs' shapes, and where they have the batch.

        Raises:
            ModelError: it says what differs.
        """
        path = saved_path(ckpt)
        _same(path, "input shapes", _shapes_text(self.shapes), _shapes_text(shapes))
        _same(path, "batch axes", self.batch_axes, dict(axes))
        _same(path, "shard size", self.shard_size, size)


def saved_path(ckpt: Path) -> Path:
    """Return where the saved engine of a model lies: ``digits.onnx`` -> ``digits.tecoengine``; itself if it is one."""
    return ckpt if is_built(ckpt) else ckpt.with_suffix(SUFFIX)


@lru_cache(maxsize=1)
def versions() -> Mapping[str, str]:
    """Return the versions of what decides the contents of a saved engine."""
    from engine.host.components import components

    found = components()
    return {name: found[name] or "none" for name in _COMPONENTS} | {"sources": hash_files(*sources())[:12]}


def sources() -> list[Path]:
    """Return the zoo's own files that decide what is saved: those of :data:`engine.sdaa.lower.MADE_OF`."""
    root = Path(__file__).resolve().parents[2]
    return [file for name in MADE_OF for file in _files(root.joinpath(*name.split(".")))]


def _files(module: Path) -> list[Path]:
    return sorted(module.rglob("*.py")) if module.is_dir() else [module.with_suffix(".py")]


# --------------------------------------------------------------------------------------------------------------- write


def write_saved(path: Path, saved: Saved, model: ModelProto | bytes) -> None:
    """Write a saved engine; on any failure the file that was there is left as it was.

    Args:
        path: where.
        saved: the manifest; size and hash of the model are filled in here.
        model: as a SPA runs it.

    Raises:
        ConfigError: the model is too large, or the file cannot be written.
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
    size = model.ByteSize()
    if size > MAX_MODEL:
        raise ConfigError(f"saved engine {path} cannot be written: the model has {size} bytes, {MAX_MODEL} is the most")
    return bytes(model.SerializeToString())


def _to_json(saved: Saved) -> dict[str, Any]:
    plain = asdict(saved) | {"outputs": [tensor_to_json(tensor) for tensor in saved.outputs]}
    return {"schema_version": SCHEMA_VERSION, **plain}


# ---------------------------------------------------------------------------------------------------------------- read


def read_saved(path: Path) -> Saved:
    """Read the manifest; the model behind it is not read yet.

    Raises:
        ModelError: the file is missing, damaged, or of another version.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            start = file.read(_HEADER_BYTES)
            offset, length, digest = _header(path, start)
            file.seek(offset)
            manifest = file.read(length)
    except OSError as error:
        raise ModelError(f"saved engine {path} cannot be read: {error.strerror}; check the path") from error
    if hashlib.sha256(manifest).hexdigest() != digest:
        raise _damaged(path)
    try:
        saved = _from_json(json.loads(manifest))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _damaged(path) from error
    if size != offset + length + saved.model_bytes:
        raise _damaged(path)
    return saved


def read_model(path: Path, saved: Saved) -> bytes:
    """Read the model behind the manifest.

    Raises:
        ModelError: it is not the model the manifest speaks of.
    """
    try:
        with path.open("rb") as file:
            file.seek(-saved.model_bytes, 2)
            model = file.read(saved.model_bytes)
    except OSError as error:
        raise ModelError(f"saved engine {path} cannot be read: {error.strerror}; check the path") from error
    if hashlib.sha256(model).hexdigest() != saved.model_sha256:
        raise _damaged(path)
    return model


def _header(path: Path, start: bytes) -> tuple[int, int, str]:
    """Return where the manifest begins, its size, and its hash."""
    if path.suffix != SUFFIX and not start.startswith(MAGIC):
        raise ModelError(
            f"{path} is no engine of target sdaa (a plan of TensorRT is for target cuda); save one with "
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


def _damaged(path: Path) -> ModelError:
    return ModelError(f"saved engine {path} is damaged: cut short, or changed after it was written; {_AGAIN}")


def _from_json(data: Mapping[str, Any]) -> Saved:
    """Read a manifest; whatever is not of its type raises, so nothing later meets it."""
    origin = data["origin"]
    plain = {field.name: data[field.name] for field in fields(Saved)}
    plain |= {
        "origin": Origin(
            **origin
            | {"external": tuple(_beside(name) for name in origin["external"]), "versions": dict(origin["versions"])}
        ),
        "shapes": {str(name): tuple(int(d) for d in shape) for name, shape in data["shapes"].items()},
        "batch_axes": {str(name): axis_from_json(axis) for name, axis in data["batch_axes"].items()},
        "independent": _known(data["independent"]),
        "reason": str(data["reason"]),
        "outputs": [tensor_from_json(entry) for entry in data["outputs"]],
        "work": _parse(ShardWork, data["work"]),
        "model_bytes": int(data["model_bytes"]),
    }
    saved = Saved(**plain)
    if [tensor.name for tensor in saved.inputs] != sorted(saved.shapes, key=list(saved.dtypes).index):
        raise ValueError("the inputs and their shapes are not the same tensors")
    return saved


def _parse(kind: type[T], entry: Mapping[str, Any]) -> T:
    """Read a dataclass whose fields are of the types in :data:`_READERS`."""
    return kind(**{field.name: _READERS[str(field.type)](entry[field.name]) for field in fields(kind)})  # type: ignore[arg-type]


_READERS: dict[str, Callable[[Any], Any]] = {
    "bool": bool,
    "int": int,
    "float": float,
    "str": str,
    "tuple[str, ...]": lambda names: tuple(map(str, names)),
    "tuple[Kernel, ...]": lambda entries: tuple(_parse(Kernel, entry) for entry in entries),
}


def _known(value: Any) -> bool | None:
    if value is not None and not isinstance(value, bool):
        raise TypeError(f"{value!r} is neither true, false nor null")
    return value


def _beside(name: str) -> str:
    """Refuse the name of a file that does not lie with the model."""
    if PurePath(name).is_absolute() or ".." in PurePath(name).parts:
        raise ValueError(f"{name!r} is not beside the model")
    return name


# ------------------------------------------------------------------------------------------------------------- compare


def _same(path: Path, what: str, have: object, want: object) -> None:
    if have != want:
        raise ModelError(f"saved engine {path} does not fit: {what} was {have}, now {want}; ask for that, or {_AGAIN}")


def _unchanged(path: Path, name: str, have: str, want: str) -> None:
    if have != want:
        raise ModelError(f"saved engine {path} does not fit: {name} was changed since; {_AGAIN}")


def _shapes_text(shapes: Mapping[str, tuple[int, ...]]) -> str:
    return ", ".join(f"{name} {'x'.join(map(str, shape)) or 'scalar'}" for name, shape in sorted(shapes.items()))


def _source_hash(source: Path, external: tuple[str, ...]) -> str:
    try:
        return hash_files(source, *(source.parent / name for name in external))
    except OSError as error:
        raise ModelError(f"{error.filename or source} cannot be read: {error.strerror}") from error


def _pass_hash(path: Path | None) -> str:
    return hash_files(path) if path else ""
