"""Target ``null``: zeros of the right shapes, for tests and for measuring everything around an engine."""

from __future__ import annotations

from math import prod

import numpy as np

from engine.base import Array, Engine, EngineError, EngineSpec, ModelError
from engine.batching.batch import batch_of
from engine.onnx.load import load_model
from engine.onnx.shapes import bind_shapes
from engine.onnx.view import graph_inputs, metadata, signature
from engine.signature import TensorSpec, with_batch
from tecoinfer_modelzoo.text import shape_text


class NullEngine(Engine):
    """Returns zeros of the shapes and dtypes of the model's outputs; nothing is computed."""

    outputs_owned = inputs_untouched = concurrent_calls = True

    def __init__(self, spec: EngineSpec) -> None:
        super().__init__(spec)
        self._model = load_model(spec.ckpt)
        self.metadata = metadata(self._model)
        self.bind(*signature(self._model))
        self._shapes: dict[tuple[tuple[int, ...], ...], list[tuple[int, ...]]] = {}

    def describe(self) -> str:
        """Return that nothing is computed."""
        return "null engine: zeros, nothing is computed"

    def infer(self, inputs: list[Array]) -> list[Array]:
        """Return zeros of the shapes that the model's outputs have for these inputs."""
        key = tuple(array.shape for array in inputs)
        if key not in self._shapes:
            self._shapes[key] = self._output_shapes(inputs)
        return [self._zeros(spec, shape) for shape, spec in zip(self._shapes[key], self.outputs, strict=True)]

    def _zeros(self, output: TensorSpec, shape: tuple[int, ...]) -> Array:
        try:
            return np.zeros(shape, output.dtype)
        except (MemoryError, ValueError) as error:  # NumPy's error for sizes beyond the address space
            raise EngineError(
                f"{self.spec.ckpt}: output {output.name!r} of shape {shape_text(shape)} has {prod(shape)} elements, "
                "for which the host has not enough memory; use a smaller batch, or export the model for smaller inputs"
            ) from error

    def _output_shapes(self, inputs: list[Array]) -> list[tuple[int, ...]]:
        """Infer shapes with the model's static batch, if it has one, then set the batch of the call."""
        total, size = batch_of(inputs, self.inputs), self.static_batch
        if size is not None and total != size and self.batching.learn():
            return self._output_shapes(self.batching.checked(inputs))
        shapes = {s.name: a.shape for a, s in zip(inputs, self.inputs, strict=True)}
        if size is not None:
            shapes = {s.name: with_batch(shapes[s.name], s.batch_axis, size) for s in self.inputs}
        bound = bind_shapes(self._model, {info.name: shapes[info.name] for info in graph_inputs(self._model)})
        found = [tensor.shape for tensor in signature(bound)[1]]
        return [self._call_shape(out, shape, total) for out, shape in zip(self.outputs, found, strict=True)]

    def _call_shape(self, output: TensorSpec, shape: tuple[int | None, ...], total: int) -> tuple[int, ...]:
        if any(d is None for d in shape):
            raise ModelError(
                f"{self.spec.ckpt}: the shape of output {output.name!r} depends on the data, so the null engine cannot "
                "return it; use --target onnx"
            )
        axis, size = output.batch_axis, self.static_batch
        fixed = size is not None and axis is not None and shape[axis : axis + 1] == (size,)
        return with_batch(shape, axis if fixed else None, total)
