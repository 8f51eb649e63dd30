"""Equivalents of a node in other operators, verified on random input."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from engine import Array, TecoInferError
from engine.onnx import infer_shapes
from toolkit.graph.inputs import draw
from toolkit.optest.outcome import worst_error

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

TOLERANCE, TOLERANCE_FLOAT16 = 1e-4, 2e-2  # largest error of an equivalent as a share of an output's largest value
SEEDS = (0, 1)


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A verified equivalent: ``model`` has the node's inputs and outputs, ``error`` is its largest.

    ``against``: the runtime of the expected values.
    """

    name: str
    model: ModelProto
    operators: tuple[str, ...]
    error: float
    against: str


def find_rewrite(cut: ModelProto, runs: Callable[[ModelProto], str]) -> Rewrite | None:
    """Return the first verified equivalent of a one-node model that the target runs.

    ``runs`` returns the error of a model on the target, or "".
    """
    for name, make in REWRITES.items():
        made = make(cut)
        if made is None or runs(made):
            continue
        found = _verified(name, cut, made)
        if found is not None:
            return found
    return None


def spelled_out(cut: ModelProto) -> ModelProto | None:
    """Return the node decomposed by its ONNX function definition, or ``None`` for a primitive operator."""
    from onnx import ModelProto, helper, inliner

    node = cut.graph.node[0]
    typed = ModelProto()
    typed.CopyFrom(cut)
    for tensor in cut.graph.initializer:  # the inliner ignores the types of weights
        typed.graph.value_info.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    try:
        made = inliner.inline_selected_functions(typed, [(node.domain, node.op_type)], inline_schema_functions=True)
    except RuntimeError:  # the definition depends on an unknown type
        return None
    return None if any(n.op_type == node.op_type and n.domain == node.domain for n in made.graph.node) else made


def in_float32(cut: ModelProto) -> ModelProto | None:
    """Return the node between casts to float32 and back, or ``None`` if it has no other floats."""
    from onnx import ModelProto, TensorProto, numpy_helper

    others = (TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16)
    made = ModelProto()
    made.CopyFrom(cut)
    kinds = {info.name: info.type.tensor_type.elem_type for info in (*made.graph.input, *made.graph.output)}
    odd = {name: kind for name, kind in kinds.items() if kind in others}
    if not odd:
        return None
    for tensor in made.graph.initializer:
        if tensor.data_type in others:
            values = numpy_helper.to_array(tensor).astype(np.float32)
            tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    nodes = _between_casts(made.graph.node[0], odd)
    del made.graph.node[:]
    made.graph.node.extend(nodes)
    return made


def _between_casts(node: NodeProto, odd: Mapping[str, int]) -> list[NodeProto]:
    """Return a node between casts: to float32 for inputs in ``odd``, and to the types there after its outputs."""
    from onnx import NodeProto, TensorProto, helper

    copy, casts = NodeProto(), []
    copy.CopyFrom(node)
    for i, name in enumerate(node.input):
        if name in odd:
            copy.input[i] = f"{name}:float32_{i}"
            casts.append(helper.make_node("Cast", [name], [copy.input[i]], to=TensorProto.FLOAT))
    casts.append(copy)
    for i, name in enumerate(node.output):
        if name in odd:
            copy.output[i] = f"{name}:float32"
            casts.append(helper.make_node("Cast", [copy.output[i]], [name], to=odd[name]))
    return casts


REWRITES: dict[str, Callable[[ModelProto], ModelProto | None]] = {
    "in the operators of its ONNX definition": spelled_out,
    "in float32 between casts": in_float32,
}
"""Description -> function that returns the equivalent of a model of one node, or ``None`` if it does not apply."""


def _verified(name: str, cut: ModelProto, made: ModelProto) -> Rewrite | None:
    from toolkit.ops.needs import op_name

    worst, against = 0.0, ""
    try:
        for seed in SEEDS:
            feed = draw(cut, seed, batch=2)
            expected, against = _expected(cut, feed)
            worst = max(worst, worst_error(_run(made, feed), expected))
    except TecoInferError:
        return None  # cannot be verified
    narrow = any(array.dtype == np.float16 for array in (*feed, *expected))
    if not worst <= (TOLERANCE_FLOAT16 if narrow else TOLERANCE):
        return None
    return Rewrite(name, made, tuple(dict.fromkeys(op_name(n) for n in made.graph.node)), worst, against)


def _run(model: ModelProto, feed: list[Array]) -> list[Array]:
    from engine.backends import HostSession

    return HostSession(model, threads=1).run(feed)


def _expected(cut: ModelProto, feed: list[Array]) -> tuple[list[Array], str]:
    """Compute the node with ONNX Runtime, or else ONNX's reference evaluator; raise TecoInferError if both fail."""
    from engine import EngineError, ModelError

    try:
        return _run(cut, feed), "ONNX Runtime"
    except ModelError:
        typed = infer_shapes(cut)
    from onnx.reference import ReferenceEvaluator

    try:
        evaluator = ReferenceEvaluator(typed)
        names = [info.name for info in cut.graph.input]
        found = evaluator.run(None, dict(zip(names, feed, strict=True)))
    except Exception as error:  # numpy may raise any exception
        raise EngineError(f"ONNX's reference cannot compute {cut.graph.node[0].op_type}: {error}") from error
    return [np.asarray(one) for one in found], "ONNX's reference"
