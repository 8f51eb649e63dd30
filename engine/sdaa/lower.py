"""Lowering: bind the shapes of one shard, run the passes, and put floats into the card's storage.

Written once, for the engine (:mod:`engine.sdaa.plan`), for the profile, and for whoever compares node by node.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from engine.passes.options import PassOptions
from engine.passes.runner import apply_passes
from engine.sdaa.cost import ShardWork, weighed_work

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

MADE_OF = (
    "engine.batching",
    "engine.onnx",
    "engine.passes",
    "engine.sdaa.cost",
    "engine.sdaa.engine",
    "engine.sdaa.fills",
    "engine.sdaa.float16",
    "engine.sdaa.kernels",
    "engine.sdaa.lower",
    "engine.sdaa.plan",
    "engine.sdaa.settle",
    "engine.signature",
)
"""Modules and packages that decide what a lowered model is; a saved engine is one of just these (:mod:`.saved`).

By name, since a saved engine is opened without importing them all; a test follows their imports.
"""


@dataclass(frozen=True)
class Lowered:
    """A model as one SPA runs it. What is dear and not always asked for is made when it is first asked for.

    Attributes:
        original: as in the file. model: with the shapes of one shard, after the passes, before any rounding.
        options: what the pass file says.
        half: whether floats are stored in float16: asked for, and not forbidden by the options.
        inputs: name -> full shape, of one shard. batch: samples of a shard.
    """

    original: ModelProto
    model: ModelProto
    options: PassOptions
    half: bool
    inputs: Mapping[str, tuple[int, ...]]
    batch: int

    @property
    def shaped(self) -> ModelProto:
        """The original with the shapes of one shard, before any pass; made anew, as weights would be held twice."""
        return bound(self.original, self.inputs)

    @cached_property
    def weighed(self) -> tuple[ShardWork, dict[str, int]]:
        """What one shard makes a SPA do, and the bytes of every constant by name."""
        return weighed_work(self.model, self.half, self.options.keeps_float32)

    @property
    def work(self) -> ShardWork:
        """What one shard makes a SPA do."""
        return self.weighed[0]

    @property
    def keeps(self) -> Callable[[NodeProto], bool]:
        """What says which nodes stay float32 in float16 storage; made anew."""
        from engine.onnx.shapes import infer_shapes
        from engine.sdaa.float16 import inlined, keeping_exact, widen

        return keeping_exact(infer_shapes(widen(inlined(self.model))).graph, self.options.keeps_float32)

    @cached_property
    def stored(self) -> ModelProto:
        """The model with its floats in the card's storage."""
        from engine.sdaa.float16 import float16_storage, widen

        if self.half:
            return float16_storage(self.model, self.options.keeps_float32, self.options.skip_input_name)
        # Widened: a float16 file asked to run in float32.
        return widen(self.model) if self.options.need_convert else self.model


def lowered(
    model: ModelProto,
    options: PassOptions,
    shapes: Mapping[str, tuple[int, ...]],
    *,
    float16: bool,
    batch: int,
    compare: bool = False,
) -> Lowered:
    """Bind shapes and run the passes; see :class:`Lowered` for what follows from it.

    Args:
        model: as in its file; left as it is.
        options: what the pass file says.
        shapes: the full shape of every input, of one shard. batch: samples in it.
        float16: whether float16 storage is asked for (else float32).
        compare: whether the passes' result is checked by running both models on random input of these shapes.

    Raises:
        ModelError: the model cannot have these shapes. PassError: the pass cannot be used.
    """
    passed = apply_passes(bound(model, shapes), options, input_shapes=shapes, compare=compare)
    return Lowered(model, passed, options, float16 and options.need_convert, shapes, batch)


def bound(model: ModelProto, shapes: Mapping[str, tuple[int, ...]]) -> ModelProto:
    """Return a copy of a model whose inputs have these shapes; others in ``shapes`` are no matter.

    Raises:
        ModelError: the model cannot have these shapes.
    """
    from engine.onnx.shapes import bind_shapes
    from engine.onnx.view import graph_inputs

    return bind_shapes(model, {info.name: shapes[info.name] for info in graph_inputs(model)})
