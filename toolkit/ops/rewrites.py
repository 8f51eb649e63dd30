"""Equivalents of a node in other operators, each tried on random input before it is offered."""

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

TOLERANCE, TOLERANCE_FLOAT16 = 1e-4, 2e-2
"""Largest error of an equivalent as a share of an output's largest value."""

SEEDS = (0, 1)


@dataclass(frozen=True, slots=True)
class Rewrite:
    """An equivalent that gave the same on random input.

    Attributes:
        name: what it is. model: it, as a model of the node's inputs and outputs.
        operators: those it uses. error: the largest seen. against: what computed the expected values.
    """

    name: str
    model: ModelProto
    operators: tuple[str, ...]
    error: float
    against: str


def find_rewrite(cut: ModelProto, runs: Callable[[ModelProto], str]) -> Rewrite | None:
    """Return the first equivalent of a single node that the target runs and that computes the same.

    Args:
        cut: a model of one node with typed inputs and outputs.
        runs: says why the target cannot run a model, "" where it can.
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
    """Return the node in the operators that ONNX itself defines it by, or ``None`` where it is a primitive."""
    from onnx import ModelProto, helper, inliner

    node = cut.graph.node[0]
    typed = ModelProto()
    typed.CopyFrom(cut)
    for tensor in cut.graph.initializer:  # the inliner looks for no types among the weights
        typed.graph.value_info.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    try:
        made = inliner.inline_selected_functions(typed, [(node.domain, node.op_type)], inline_schema_functions=True)
    except RuntimeError:  # a type that the definition depends on is not known
        return None
    return None if any(n.op_type == node.op_type and n.domain == node.domain for n in made.graph.node) else made


def in_float32(cut: ModelProto) -> ModelProto | None:
    """Return the node with casts to float32 and back around it, or ``None`` where it holds no other floats."""
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
    """Return a node with a cast to float32 before each of its inputs, and one back behind each of its outputs.

    Args:
        node: which. odd: types of the inputs and outputs that are meant, by name.
    """
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
    "in the operators ONNX defines it by": spelled_out,
    "in float32, with casts around it": in_float32,
}
"""Name -> what makes the equivalent of a model of one node, or ``None`` where it does not apply."""


def _verified(name: str, cut: ModelProto, made: ModelProto) -> Rewrite | None:
    from toolkit.ops.needs import op_name

    worst, against = 0.0, ""
    try:
        for seed in SEEDS:
            feed = draw(cut, seed, batch=2)
            expected, against = _expected(cut, feed)
            worst = max(worst, worst_error(_run(made, feed), expected))
    except TecoInferError:
        return None  # no random input fits it, or nothing here computes it: not verified, so not offered
    narrow = any(array.dtype == np.float16 for array in (*feed, *expected))
    if not worst <= (TOLERANCE_FLOAT16 if narrow else TOLERANCE):
        return None
    return Rewrite(name, made, tuple(dict.fromkeys(op_name(n) for n in made.graph.node)), worst, against)


def _run(model: ModelProto, feed: list[Array]) -> list[Array]:
    from engine import HostSession

    return HostSession(model, threads=1).run(feed)


def _expected(cut: ModelProto, feed: list[Array]) -> tuple[list[Array], str]:
    """Compute the node itself: on ONNX Runtime, or where that lacks it on ONNX's reference.

    Raises:
        TecoInferError: neither can.
    """
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
    except Exception as error:  # the reference raises whatever numpy does
        raise EngineError(f"ONNX's reference cannot compute {cut.graph.node[0].op_type}: {error}") from error
    return [np.asarray(one) for one in found], "ONNX's reference"
