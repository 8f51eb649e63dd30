"""Check of a model's inputs before profiling."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine import ConfigError, TensorSpec
from toolkit.graph.inputs import Shapes

if TYPE_CHECKING:
    from onnx import ModelProto


def checked_inputs(model: ModelProto, shapes: Shapes) -> list[TensorSpec]:
    """Return a model's inputs.

    Raises:
        ConfigError: an input has strings, or a shape does not fit the model.
        ModelError: an input is not a tensor.
    """
    from engine.onnx import signature

    inputs = signature(model)[0]
    for spec in inputs:
        if spec.dtype.kind not in "fiub":
            raise ConfigError(f"input {spec.name!r} has strings; only models with numeric inputs can be profiled")
        given = shapes.get(spec.name, spec.shape)
        fits = len(given) == len(spec.shape) and all(d in (None, g) for d, g in zip(spec.shape, given, strict=True))
        if not fits:
            declared = ", ".join("N" if d is None else str(d) for d in spec.shape)
            shape = ",".join(map(str, given))
            raise ConfigError(f"--shape {spec.name}={shape} does not fit the model's shape ({declared})")
    return inputs
