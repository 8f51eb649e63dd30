"""TensorRT plan files: the shapes a plan serves, what it was built from, and whether it may still be used.

A plan (``<model>.engine``, raw TensorRT bytes) is stored beside its model with a record (``<model>.engine.json``). It
is used only if every field of its key equals what would be built now and its hash is that of the record. This module
does not need TensorRT.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, TypeAlias

from engine.base import ConfigError, EngineSpec, ModelError, TensorSpec
from engine.batching.dims import how_to_bind, shown_shape
from engine.signature import Dim, dim_from_json, tensor_from_json, tensor_to_json
from tecoinfer_modelzoo.files import open_regular, read_regular, write_file
from tecoinfer_modelzoo.json_types import Problems, entries, items, parsed, text, whole
from tecoinfer_modelzoo.text import typed_reason

SCHEMA_VERSION = 2  # of the record; 2 has batch axes and symbols
MOST_RECORD = 1 << 26  # size limit of a record in bytes

Shapes: TypeAlias = dict[str, list[list[int]]]
"""Input name -> [smallest, typical, largest] shape, as in a TensorRT optimisation profile."""


@dataclass(frozen=True)
class PlanKey:
    """Everything a plan depends on; see :func:`engine.onnx.file_hash` for the model's hash."""

    model_sha256: str
    pass_sha256: str
    input_shapes: Shapes
    precision: str
    tensorrt: str
    gpu: str
    schema_version: int = SCHEMA_VERSION


@dataclass(frozen=True)
class PlanRecord:
    """The contents of ``<model>.engine.json``: key, hash of the plan, and signature, with bound input shapes."""

    key: PlanKey
    plan_sha256: str
    inputs: list[TensorSpec]
    outputs: list[TensorSpec]
    dims: list[list[Dim]]
    metadata: dict[str, str]


def plan_path(ckpt: Path) -> Path:
    """Return the path of a model's plan: ``digits.onnx`` -> ``digits.engine``."""
    return ckpt.with_suffix(".engine")


def record_path(plan: Path) -> Path:
    """Return the path of a plan's record: ``digits.engine`` -> ``digits.engine.json``."""
    return plan.with_name(f"{plan.name}.json")


def bound_dims(inputs: Sequence[TensorSpec], dims: Sequence[Sequence[Dim]], spec: EngineSpec) -> list[list[Dim]]:
    """Return declared shapes in which only a dynamic batch, and dimensions with a range of sizes, are dynamic.

    Args:
        inputs: after ``input_size`` was applied. dims: their declared shapes, in the same order.
        spec: the model, for the message, and the sizes of symbolic dimensions.

    Raise ConfigError if another dimension is dynamic and has no size.
    """
    result: list[list[Dim]] = []
    for tensor, declared in zip(inputs, dims, strict=True):
        both = list(zip(declared, tensor.shape, strict=True))
        if any(d is None and i != tensor.batch_axis and name not in spec.dims for i, (name, d) in enumerate(both)):
            raise ConfigError(
                f"{spec.ckpt}: input {tensor.name!r} has dynamic dimensions ({shown_shape(tensor)}); "
                f"{how_to_bind(inputs, spec.dims)}"
            )
        result.append([name if i == tensor.batch_axis or d is None else d for i, (name, d) in enumerate(both)])
    return result


def profile_shapes(
    inputs: Sequence[TensorSpec],
    declared: Sequence[Sequence[Dim]],
    batch: int,
    dims: Mapping[str, tuple[int, ...]] | None = None,
) -> Shapes:
    """Return the optimisation profile: batches from 1 to ``batch``, tuned for ``batch``.

    Args:
        inputs: bound inputs; only a dynamic batch and dimensions in ``dims`` are ``None``.
        declared: the declared shapes, in the same order; an input without a dynamic dimension needs no profile.
        batch: largest number of samples in one run.
        dims: increasing sizes of symbolic dimensions: from the first to the last, tuned for the last.
    """
    sizes = dims or {}
    shapes: Shapes = {}
    for tensor, own in zip(inputs, declared, strict=True):
        if all(isinstance(d, int) for d in own):
            continue
        smallest = list(smallest_shape(tensor, 1, sizes))
        largest = list(smallest_shape(tensor, batch, {symbol: found[-1:] for symbol, found in sizes.items()}))
        shapes[tensor.name] = [smallest, largest, list(largest)]
    return shapes


def smallest_shape(tensor: TensorSpec, rows: int, dims: Mapping[str, tuple[int, ...]]) -> tuple[int, ...]:
    """Return an input's shape for a number of samples, symbolic dimensions at their first size."""
    symbols = tensor.symbols or (None,) * len(tensor.shape)
    open_sizes = (dims.get(symbol or "", (rows,))[0] for symbol in symbols)
    both = enumerate(zip(tensor.shape, open_sizes, strict=True))
    return tuple(size if d is None and i != tensor.batch_axis else rows if d is None else d for i, (d, size) in both)


def stale_reason(record: PlanRecord, key: PlanKey, plan: bytes) -> str | None:
    """Return why a plan, with its ``record`` and bytes, must not be used for ``key``; ``None`` if it may."""
    for field in fields(PlanKey):
        have, want = getattr(record.key, field.name), getattr(key, field.name)
        if have != want:
            return f"{field.name} was {have!r}, now {want!r}"
    return None if is_whole(record, plan) else "the plan is truncated or was changed after it was built"


def is_whole(record: PlanRecord, plan: bytes) -> bool:
    """Return whether the bytes have the hash of the record."""
    return hashlib.sha256(plan).hexdigest() == record.plan_sha256


def write_plan(path: Path, plan: bytes, record: PlanRecord) -> None:
    """Write a plan and its record, each atomically, the plan first: a crash between them is detected by the hash."""
    write_file(path, plan)
    write_file(record_path(path), json.dumps(_to_json(record), indent=2).encode())


def read_plan(path: Path) -> bytes:
    """Return the bytes of a plan; raise ModelError if it cannot be read."""
    try:
        with open_regular(path) as file:
            return file.read()
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}; check the path, or rebuild it") from error


def read_record(plan: Path) -> PlanRecord | None:
    """Return a plan's record, or ``None``; raise ModelError if it is unreadable or of another version of the zoo."""
    path = record_path(plan)
    if not path.is_file():
        return None
    try:
        return _from_json(parsed(read_regular(path, MOST_RECORD)))
    except (OSError, *Problems) as error:
        raise ModelError(f"{path} is not a plan record ({typed_reason(error)}); delete it and rebuild") from error


def _to_json(record: PlanRecord) -> dict[str, Any]:
    return {
        **asdict(record.key),
        "plan_sha256": record.plan_sha256,
        "inputs": [
            {**tensor_to_json(tensor), "dims": dims} for tensor, dims in zip(record.inputs, record.dims, strict=True)
        ],
        "outputs": [tensor_to_json(tensor) for tensor in record.outputs],
        "metadata": dict(record.metadata),
    }


def _from_json(data: Any) -> PlanRecord:
    key = {field.name: entries(data)[field.name] for field in fields(PlanKey)}
    for name in key.keys() - {"input_shapes", "schema_version"}:
        text(key[name])
    key |= {"input_shapes": _shapes(key["input_shapes"]), "schema_version": whole(key["schema_version"])}
    return PlanRecord(
        key=PlanKey(**key),
        plan_sha256=text(data["plan_sha256"]),
        inputs=[tensor_from_json(entry) for entry in items(data["inputs"])],
        outputs=[tensor_from_json(entry) for entry in items(data["outputs"])],
        dims=[[dim_from_json(dim) for dim in items(entry["dims"])] for entry in data["inputs"]],
        metadata={name: text(value) for name, value in entries(data["metadata"]).items()},
    )


def _shapes(value: Any) -> Shapes:
    found = {
        name: [[whole(d) for d in items(shape)] for shape in items(shapes)] for name, shapes in entries(value).items()
    }
    if any(len(shapes) != 3 for shapes in found.values()):
        raise ValueError("a profile has the smallest, the typical and the largest shape")
    return found
