"""Target ``sdaa``: a batch split over the SPA of a simulated T1 card, computed in float16 storage on the host."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from engine.base import Array, ConfigError, Engine, EngineSpec, ModelError, engine_nums
from engine.onnx_graph import bind_shapes, graph_inputs, load_model, metadata, signature
from engine.ort import HostSession
from engine.passes.options import PassOptions
from engine.passes.runner import apply_passes
from engine.sdaa.device import Card
from engine.sdaa.float16 import float16_storage, widen
from engine.shard import run_sharded

if TYPE_CHECKING:
    from onnx import ModelProto


class SdaaEngine(Engine):
    """One engine instance per SPA of the card, each of a fixed batch.

    The batch of an instance is the model's own where that is fixed, else the first number of ``input_size``, else the
    card's batch divided over its SPA (rounded up). A call may carry any number of samples.
    """

    default_dtype = "float16"
    simulated = True

    def __init__(self, spec: EngineSpec) -> None:
        super().__init__(spec)
        spa_count = engine_nums() if spec.divided else 1
        options = PassOptions.load(spec.pass_path)
        model = load_model(spec.ckpt)
        self.metadata = metadata(model)
        self.bind(*signature(model))
        self.shard_size = self.static_batch or self._shard_size(spa_count)
        model = self._build(model, options)
        try:
            self._session = HostSession(model)
        except ModelError as error:
            raise ModelError(f"{spec.ckpt}: {error}") from error
        self._card = Card(spa_count, self._session.run)
        storage = f"{self.dtype} storage" if options.need_convert else "stored as the model is (need_convert = False)"
        self._described = (
            f"simulated T1 card: {spa_count} SPA x batch {self.shard_size}, {storage}; times are host wall time"
        )
        dtypes = {tensor.name: tensor.dtype for tensor in self._session.inputs}
        self.inputs = [replace(tensor, dtype=dtypes[tensor.name]) for tensor in self.inputs]
        self.outputs = self._session.outputs
        self._order = [[t.name for t in self.inputs].index(t.name) for t in self._session.inputs]

    def _shard_size(self, spa_count: int) -> int:
        if self.spec.input_size is not None and self.inputs[self.lead].batched:
            return self.spec.input_size[self.lead][0]
        return -(-self.spec.batch_size // spa_count)

    def _build(self, model: ModelProto, options: PassOptions) -> ModelProto:
        """Bind shapes, run the passes, and put the values into the card's storage."""
        shapes = {}
        for tensor in self.inputs:
            if None in tensor.shape[1 if tensor.batched else 0 :]:
                shape = ["N" if d is None else str(d) for d in tensor.shape]
                raise ConfigError(
                    f"{self.spec.ckpt}: input {tensor.name!r} has dynamic dimensions ({', '.join(shape)}); pass "
                    "input_size with one full shape per input, such as [[16, 3, 224, 224]] (--input_size 224)"
                )
            fixed = tuple(d or 0 for d in tensor.shape)
            shapes[tensor.name] = (self.shard_size, *fixed[1:]) if tensor.batched else fixed
        model = bind_shapes(model, {info.name: shapes[info.name] for info in graph_inputs(model)})
        model = apply_passes(model, options, input_shapes=shapes)
        if not options.need_convert:
            return model
        if self.dtype == "float16":
            return float16_storage(model, options.keeps_float32, options.skip_input_name)
        return widen(model)  # a float16 file asked to run in float32

    def describe(self) -> str:
        """Name the card, how many SPA, the precision, and that it is simulated."""
        return self._described

    def infer(self, inputs: list[Array]) -> list[Array]:
        """Split the batch over the SPA and gather the results in order."""
        ordered = [inputs[i] for i in self._order]
        specs = [self.inputs[i] for i in self._order]
        names = [tensor.name for tensor in self.outputs]
        return run_sharded(self._card.spas[0].run, ordered, specs, names, self.shard_size, self._card.run)

    def close(self) -> None:
        """Drop the engine instances and the weights they share."""
        del self._card, self._session
