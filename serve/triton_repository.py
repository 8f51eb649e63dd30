"""A model repository for the Triton Inference Server: ``config.pbtxt``, ONNX file and labels of each network."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from engine import ConfigError, Engine, EngineSpec, TensorSpec, open_engine
from engine.onnx import external_names
from serve.engines.joined import can_join
from serve.engines.opened import task_of
from serve.protocol.datatypes import datatype_of
from serve.source import NAME, ModelSource
from utils.stored import ModelMetadata

LABELS = "labels.txt"
VERSION = "1"
"""Folder of the model's only version."""


def networks(source: ModelSource) -> dict[str, Path]:
    """Return the ONNX files of a model by the names that they get: of several networks ``MODEL_NETWORK``."""
    if source.ckpt:
        return {source.name: Path(source.ckpt)}
    found = task_of(source).options.models
    if len(found) == 1:
        return {source.name: next(iter(found.values()))}
    return {f"{source.name}_{name}": path for name, path in found.items()}


def export_repository(sources: Sequence[ModelSource], out: Path, rows: int) -> list[Path]:
    """Write a repository, and return the folders of its models.

    Args:
        sources: the models. out: folder, created if missing. rows: most rows of a batch.

    Raises ConfigError if a model exists there already, or two have one name; ModelError if one cannot be opened.
    """
    files = [item for source in sources for item in networks(source).items()]
    for place, (name, _) in enumerate(files):
        if not NAME.fullmatch(name) or name in dict(files[:place]):
            raise ConfigError(f"model name {name!r} is invalid, or given twice; name it: NEW=MODEL")
        if (out / name).exists():
            raise ConfigError(f"{out / name} exists already; remove it, or choose another folder with --out")
    return [_export(name, path, out / name, rows) for name, path in files]


def _export(name: str, ckpt: Path, folder: Path, rows: int) -> Path:
    with open_engine("onnx", EngineSpec(ckpt=ckpt, batch_size=rows)) as engine:
        engine.batching.learn()
        labels = ModelMetadata(engine.metadata, ckpt).labels
        text = config(name, engine, rows, has_labels=labels is not None)
    version = folder / VERSION
    version.mkdir(parents=True)
    shutil.copyfile(ckpt, version / "model.onnx")
    for other in external_names(ckpt):
        (version / other).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ckpt.parent / other, version / other)
    if labels is not None:
        (folder / LABELS).write_text("".join(f"{label}\n" for label in labels), encoding="utf-8")
    (folder / "config.pbtxt").write_text(text, encoding="utf-8")
    return folder


def config(name: str, engine: Engine, rows: int, *, has_labels: bool = False) -> str:
    """Return the ``config.pbtxt`` of an opened network.

    Triton batches only if the rows are proven independent of one another and the batch is the first dimension of every
    tensor; otherwise ``max_batch_size`` is 0 and shapes are complete.

    Args:
        name: of the model. engine: with its batch axes learned. rows: most rows of a batch.
        has_labels: whether a file of labels is beside it.
    """
    tensors = [*engine.inputs, *engine.outputs]
    first = all(spec.batch_axis == 0 for spec in tensors)
    batches = engine.independent is True and first and not can_join(engine.inputs, engine.outputs)
    most = (engine.static_batch or rows) if batches else 0
    lines = [f"name: {_quoted(name)}", 'backend: "onnxruntime"', f"max_batch_size: {most}"]
    lines += _tensors("input", engine.inputs, most)
    lines += _tensors("output", engine.outputs, most, LABELS if has_labels else "")
    if batches and engine.static_batch is None and rows > 1:
        lines.append("dynamic_batching { }")
    return "\n".join(lines) + "\n"


def _tensors(kind: str, specs: Sequence[TensorSpec], most: int, labels: str = "") -> Iterator[str]:
    for place, spec in enumerate(specs):
        sizes = [-1 if size is None or axis == spec.batch_axis else size for axis, size in enumerate(spec.shape)]
        sizes = sizes[1:] if most else sizes
        dims, reshape = (sizes, "") if sizes else ([1], " reshape: { shape: [ ] }")  # Triton's shapes are not empty
        named = f" label_filename: {_quoted(labels)}" if labels and place == 0 else ""
        yield f"{kind} {{ name: {_quoted(spec.name)} data_type: {_type(spec)} dims: {dims}{reshape}{named} }}"


def _type(spec: TensorSpec) -> str:
    datatype = datatype_of(spec.dtype)
    return "TYPE_STRING" if datatype == "BYTES" else f"TYPE_{datatype}"


def _quoted(text: str) -> str:
    """Return a text as a string of protobuf's text form, whose escapes below 128 are those of JSON."""
    return json.dumps(text, ensure_ascii=False)
