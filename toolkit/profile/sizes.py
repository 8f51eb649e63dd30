"""Sizes of the inputs of a profiled model: from flags, from samples, or defaults listed in a note."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from engine import ConfigError, TecoInferError, TensorSpec
from toolkit.graph.inputs import Shapes, check_dims, input_shapes, input_specs
from utils.stored import ModelMetadata

if TYPE_CHECKING:
    from onnx import ModelProto

    from toolkit.fix.opening import SampleRequest

LENGTH = 128  # default size of a dynamic dimension, such as the length of a text
_SIDES = (2, 3)  # axes of the height and width of an image


@dataclass(frozen=True)
class Sizes:
    """Shapes of one run by input, and their source: ``model``, ``flags``, ``samples`` or ``default``; a note, or ""."""

    shapes: Shapes
    source: str
    note: str = ""


def sizes_of(model: ModelProto, path: Path, batch: int, wanted: SampleRequest) -> Sizes:
    """Return the sizes of one run; ``batch``: of a dynamic one, ``wanted``: from the flags.

    Raise ConfigError if a dimension or input is unknown, DataError if the samples cannot be read.
    """
    specs = input_specs(model)
    check_dims(specs, wanted.dims)
    given = dict(wanted.shapes)
    unread = ""
    if wanted.given:
        try:
            fed, where = _fed(model, path, specs, batch, wanted)
        except TecoInferError as error:
            if not wanted.own:
                raise
            unread = f"; the samples of case {wanted.own} cannot be used: {error}"
        else:
            full = input_shapes(model, batch, fed | given, wanted.dims)
            return Sizes(full, "samples", f"sizes of the first call of {where}")
    filled, defaults = _defaults(model, specs, batch, wanted)
    full = input_shapes(model, batch, given | filled, wanted.dims)
    if not defaults:
        return Sizes(full, "flags" if given or wanted.dims else "model", unread.removeprefix("; "))
    listed = ", ".join(f"{name} = {size}" for name, size in defaults.items())
    return Sizes(full, "default", f"default sizes: {listed}; set others with --dim NAME=N or --data{unread}")


def _fed(
    model: ModelProto, path: Path, specs: Sequence[TensorSpec], batch: int, wanted: SampleRequest
) -> tuple[dict[str, tuple[int, ...]], str]:
    """Return the shapes of the first call over samples, with the batch of a run, and the source of the samples."""
    from toolkit.fix.opening import open_samples

    with open_samples(path, model, wanted) as samples:
        inputs = next(iter(samples.calls())).inputs
        where = samples.where or "the task's samples"
        axes = [spec.batch_axis for spec in samples.specs]
    shapes = {}
    for spec, axis, array in zip(specs, axes, inputs, strict=True):
        size = [batch if i == axis and spec.shape[i] is None else d for i, d in enumerate(array.shape)]
        shapes[spec.name] = tuple(size)
    return shapes, where


def _defaults(
    model: ModelProto, specs: Sequence[TensorSpec], batch: int, wanted: SampleRequest
) -> tuple[dict[str, tuple[int, ...]], dict[str, int]]:
    """Return static shapes of the inputs with default sizes, and these sizes by name."""
    given = _symbols(specs, wanted.shapes) | {symbol: max(sizes) for symbol, sizes in wanted.dims.items()}
    shapes: dict[str, tuple[int, ...]] = {}
    found: dict[str, int] = {}
    for spec in specs:
        if spec.name in wanted.shapes or None not in spec.shape:
            continue
        symbols = spec.symbols or (None,) * len(spec.shape)
        shape = []
        for axis, (size, symbol) in enumerate(zip(spec.shape, symbols, strict=True)):
            known = size if size is not None else given.get(symbol or "", batch if axis == spec.batch_axis else None)
            shape.append(_default(model, spec, axis) if known is None else known)
            if known is None:
                found[symbol or f"dimension {axis} of {spec.name}"] = shape[-1]
        shapes[spec.name] = tuple(shape)
    return shapes, found


def _symbols(specs: Sequence[TensorSpec], shapes: Shapes) -> dict[str, int]:
    """Return the sizes of symbols in the given shapes."""
    found: dict[str, int] = {}
    for spec in specs:
        named = zip(spec.symbols, shapes.get(spec.name, ()), strict=False)
        found |= {symbol: size for symbol, size in named if symbol is not None}
    return found


def _default(model: ModelProto, spec: TensorSpec, axis: int) -> int:
    """Return the size of a dynamic dimension: of an image as stored in the metadata, else :data:`LENGTH`."""
    from engine.onnx import metadata

    if spec.dtype.kind == "f" and len(spec.shape) == 4 and axis in _SIDES:
        return ModelMetadata(metadata(model)).image.crop[_SIDES.index(axis)]
    return LENGTH


def checked_inputs(model: ModelProto, shapes: Shapes) -> list[TensorSpec]:
    """Return a model's inputs; raise ConfigError for strings or unfit shapes, ModelError if one is not a tensor."""
    from engine.onnx import signature

    inputs = signature(model)[0]
    for spec in inputs:
        if spec.dtype.kind not in "fiub":
            raise ConfigError(f"input {spec.name!r} has strings; only models with numeric inputs can be profiled")
        given = shapes.get(spec.name, spec.shape)
        fits = len(given) == len(spec.shape) and all(d in (None, g) for d, g in zip(spec.shape, given, strict=True))
        if not fits:
            declared = ", ".join("N" if d is None else str(d) for d in spec.shape)
            shape = "x".join(map(str, given))
            raise ConfigError(f"--dim {spec.name}={shape} does not fit the model's shape ({declared})")
    return inputs
