"""Lowering: bind the shapes of one shard, run the passes, and put floats into the card's storage.

Used by the engine (:mod:`engine.sdaa.plan`), the profile, and comparisons node by node.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from engine.passes.options import PassOptions
from engine.passes.runner import apply_passes
from engine.sdaa.cost import ShardWork, weighed_work
from engine.signature import Array

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

MADE_OF = (
    *("engine.batching", "engine.onnx", "engine.passes", "engine.sdaa.cost", "engine.sdaa.engine", "engine.sdaa.fills"),
    *("engine.sdaa.float16", "engine.sdaa.kernels", "engine.sdaa.lower", "engine.sdaa.plan"),
    "engine.signature",
)
"""Modules that determine a lowered and thus a saved model (:mod:`.saved`); names avoid imports, and a test checks them.
"""


@dataclass(frozen=True)
class Lowered:
    """A model as one SPA runs it; expensive results are computed on first use."""

    original: ModelProto  # as in the file
    model: ModelProto  # with the shapes of one shard, after the passes, before any rounding
    options: PassOptions  # of the pass file
    half: bool  # whether floats are stored in float16: requested, and not disabled by the options
    inputs: Mapping[str, tuple[int, ...]]  # name -> full shape, of one shard
    batch: int  # samples of a shard
    weights: Mapping[str, Array] = field(default_factory=dict)  # held apart from all these models, as in the file

    @property
    def shaped(self) -> ModelProto:
        """The original with the shapes of one shard, before any pass; computed on each use, to save memory."""
        return bound(self.original, self.inputs)

    @cached_property
    def weighed(self) -> tuple[ShardWork, dict[str, int]]:
        """Work of a SPA for one shard, and the bytes of every constant by name."""
        return weighed_work(self.model, self.half, self.options.keeps_float32, self._wide)

    @cached_property
    def _wide(self) -> ModelProto:
        from engine.sdaa.float16 import widened

        return widened(self.model)

    @property
    def work(self) -> ShardWork:
        """Work of a SPA for one shard."""
        return self.weighed[0]

    @property
    def keeps(self) -> Callable[[NodeProto], bool]:
        """Predicate of nodes that stay float32 in float16 storage; computed on each use."""
        from engine.sdaa.float16 import keeping_exact, widened

        return keeping_exact(widened(self.model).graph, self.options.keeps_float32)

    @cached_property
    def stored(self) -> ModelProto:
        """The model with its floats in the card's storage."""
        from engine.onnx.widen import widen
        from engine.sdaa.float16 import float16_storage

        if self.half:
            wide = self.__dict__.pop("_wide", None)  # it is changed
            return float16_storage(self.model, self.options.keeps_float32, self.options.skip_input_name, wide)
        # Widened: a float16 file may run in float32.
        return widen(self.model) if self.options.need_convert else self.model

    def arrays(self, spend: dict[str, Array] | None = None) -> dict[str, Array]:
        """Return the weights that :attr:`stored` has apart, by their names in it; see :func:`.float16.resolved`."""
        from engine.sdaa.float16 import resolved

        return resolved(self.stored, self.weights, spend)


def lowered(
    model: ModelProto,
    options: PassOptions,
    shapes: Mapping[str, tuple[int, ...]],
    *,
    float16: bool,
    batch: int,
    compare: bool = False,
    weights: Mapping[str, Array] | None = None,
) -> Lowered:
    """Bind shapes and run the passes; see :class:`Lowered`.

    Args:
        model: as in its file; not changed.
        options: of the pass file.
        shapes: the full shape of every input, of one shard. batch: samples in it.
        float16: whether float16 storage is requested (else float32).
        compare: whether the passes' result is checked by running both models on random input of these shapes.
        weights: of the model, held apart (:mod:`engine.onnx.apart`); a pass gets a model with them.

    Raise ModelError if the model cannot have these shapes, PassError if the pass cannot be used.
    """
    shaped, weights = bound(model, shapes), weights or {}
    if weights and options.use_passes is not None:
        from engine.onnx.apart import joined

        shaped, weights = joined(shaped, weights), {}
    passed = apply_passes(shaped, options, input_shapes=shapes, compare=compare)
    return Lowered(model, passed, options, float16 and options.need_convert, shapes, batch, weights)


def bound(model: ModelProto, shapes: Mapping[str, tuple[int, ...]]) -> ModelProto:
    """Return a copy with these input shapes, other names ignored; raise ModelError if the model cannot have them."""
    from engine.onnx.shapes import bind_shapes
    from engine.onnx.view import graph_inputs

    return bind_shapes(model, {info.name: shapes[info.name] for info in graph_inputs(model)})
