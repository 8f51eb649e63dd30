"""Target ``null``: zeros of the right shapes at once, for tests and for measuring everything around an engine."""

from __future__ import annotations

import numpy as np

from engine.base import Array, Engine, EngineSpec, ModelError
from engine.onnx_graph import bind_shapes, graph_inputs, load_model, metadata, signature
from engine.signature import TensorSpec


class NullEngine(Engine):
    """Answers every call with zeros of the shapes and dtypes the model would give; nothing is computed."""

    def __init__(self, spec: EngineSpec) -> None:
        super().__init__(spec)
        self._model = load_model(spec.ckpt)
        self.metadata = metadata(self._model)
        self.bind(*signature(self._model))
        self._shapes: dict[tuple[tuple[int, ...], ...], list[tuple[int, ...]]] = {}

    def describe(self) -> str:
        """Say that nothing is computed."""
        return "null engine: zeros, nothing is computed"

    def infer(self, inputs: list[Array]) -> list[Array]:
        """Return zeros of the shapes the model gives for these inputs."""
        key = tuple(array.shape for array in inputs)
        if key not in self._shapes:
            self._shapes[key] = self._output_shapes(inputs)
        return [np.zeros(shape, spec.dtype) for shape, spec in zip(self._shapes[key], self.outputs, strict=True)]

    def _output_shapes(self, inputs: list[Array]) -> list[tuple[int, ...]]:
        """Infer on the model's own batch where that is fixed, then set the batch of the call."""
        total, size = inputs[self.lead].shape[:1] or (1,), self.static_batch
        shapes = {s.name: a.shape for a, s in zip(inputs, self.inputs, strict=True)}
        if size is not None:
            shapes = {s.name: (size, *shapes[s.name][1:]) if s.batched else shapes[s.name] for s in self.inputs}
        bound = bind_shapes(self._model, {info.name: shapes[info.name] for info in graph_inputs(self._model)})
        _, outputs, _ = signature(bound)
        return [self._call_shape(out, size, total[0]) for out in outputs]

    def _call_shape(self, output: TensorSpec, size: int | None, total: int) -> tuple[int, ...]:
        if any(d is None for d in output.shape):
            raise ModelError(
                f"{self.spec.ckpt}: the shape of output {output.name!r} depends on the data, so the null engine cannot "
                "answer for it; use --target onnx"
            )
        shape = tuple(d or 0 for d in output.shape)
        return (total, *shape[1:]) if size is not None and shape[:1] == (size,) else shape
