"""The graph that TVM compiles: shapes bound, passes applied, constants computed, and operators that it can import.

TVM is not imported here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from engine.base import ModelError

if TYPE_CHECKING:
    from onnx import ModelProto

    from engine.passes.options import PassOptions

MADE_OF = (
    *("engine.batching", "engine.onnx", "engine.passes", "engine.backends.constants", "engine.backends.tvm"),
    *("engine.backends.tvm_graph", "engine.backends.tvm_recurrent", "engine.backends.tvm_rules"),
    *("engine.backends.tvm_runtime", "engine.backends.tvm_schedule", "engine.backends.tvm_tune"),
)
"""Modules that determine a compiled plan."""

_UNSAFE = {
    "EmbedLayerNormalization": "looks up indices that are not checked",
    "MaxRoiPool": "reads at indices that are not checked",
    "MaxUnpool": "writes at indices that are not checked",
    "RoiAlign": "reads at indices that are not checked",
    "If": "needs a condition that is constant",
    "Loop": "is not supported",
    "Scan": "is not supported",
}
"""Operators that are refused, and the reason: an index beyond its tensor would end the process."""

_DOMAINS = {"com.microsoft": frozenset(("BiasGelu", "FastGelu", "Gelu", "SkipLayerNormalization"))}
"""Operators of other domains than ONNX's that TVM's importer, which ignores the domain, reads as they are meant."""

_OTHERS_ATTENTION = frozenset(("Attention", "SkipLayerNormalization", "FastGelu", "BiasGelu"))
"""Names that TVM's importer takes for operators of com.microsoft; an ONNX operator of that name is another one."""


class Prepared(NamedTuple):
    """A graph to compile; ``guarded``: nodes whose index errors its last output reports."""

    model: ModelProto
    guarded: tuple[str, ...]


def prepared(
    model: ModelProto,
    options: PassOptions,
    shapes: Mapping[str, tuple[int, ...]],
    check: Mapping[str, tuple[int, ...]] | None = None,
    loops: bool = False,
) -> Prepared:
    """Return the graph that TVM compiles for inputs of these shapes.

    Args:
        model: in float32 (:func:`engine.onnx.widen.widen` of a float16 model); not changed.
        options: of the pass file.
        shapes: full shape of every input. check: shapes for which the pass is compared with the original; ``None`` does
            not compare.
        loops: recurrent layers become :data:`engine.onnx.recurrent.LOOP` where possible.

    Raise ModelError if the model cannot have these shapes, or TVM cannot compile an operator; PassError if the pass
    cannot be used.
    """
    from engine.backends.constants import with_constants
    from engine.backends.tvm_rules import Rewriter
    from engine.onnx.functions import inlined
    from engine.onnx.recurrent import unrolled
    from engine.onnx.view import graph_inputs
    from engine.passes.runner import apply_passes

    plain = inlined(model)
    if check is not None and options.use_passes is not None:
        apply_passes(_bound(plain, check), options, input_shapes=check)
    bound = with_constants(apply_passes(_bound(plain, shapes), options, input_shapes=shapes, compare=False))
    plain = unrolled(bound, loops)
    if plain is not bound:
        plain = with_constants(plain)
    check_operators(plain)
    rewriter = Rewriter(plain)
    result = rewriter.rewritten()
    inputs = graph_inputs(result)  # before IR 4 constants are listed among the inputs
    del result.graph.input[:]
    result.graph.input.extend(inputs)
    return Prepared(result, tuple(rewriter.guarded))


def _bound(model: ModelProto, shapes: Mapping[str, tuple[int, ...]]) -> ModelProto:
    from engine.onnx.shapes import bind_shapes
    from engine.onnx.view import graph_inputs

    return bind_shapes(model, {info.name: shapes[info.name] for info in graph_inputs(model)})


def check_operators(model: ModelProto) -> None:
    """Raise ModelError, with their names, for operators that are not compiled, or not safely."""
    from engine.onnx.recurrent import LOOP, LOOP_DOMAIN

    foreign, unsafe = set(), set()
    for node in model.graph.node:
        if (node.domain, node.op_type) == (LOOP_DOMAIN, LOOP):
            continue
        if node.domain not in ("", "ai.onnx"):
            if node.op_type not in _DOMAINS.get(node.domain, ()):
                foreign.add(f"{node.domain}.{node.op_type}")
        elif node.op_type in _OTHERS_ATTENTION:
            foreign.add(node.op_type)
        elif node.op_type in _UNSAFE:
            unsafe.add(node.op_type)
    if foreign:
        raise ModelError(f"TVM cannot import: {', '.join(sorted(foreign))}; use --target onnx")
    if unsafe:
        name = min(unsafe)
        raise ModelError(f"TVM cannot import: {', '.join(sorted(unsafe))} ({name} {_UNSAFE[name]}); use --target onnx")
