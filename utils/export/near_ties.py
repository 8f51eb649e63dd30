"""Near ties: a file that swaps two nearly equal values in a ranking (TopK, ArgMax, ArgMin) is not wrong.

The float32 model is run with the indices that the file picked, and each index is judged by the value it points to.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from engine import Array, Engine, EngineSpec, open_engine
from engine.onnx import infer_shapes

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, ValueInfoProto

_MASKED = 1e4
"""Magnitude from which a value counts as masked and is ignored in the scale of the others."""

_SAME = frozenset({"Identity", "Cast", "Squeeze", "Unsqueeze", "Reshape"})
"""Operators that do not change indices."""


class RankingNode(NamedTuple):
    """A node that ranks ``ranked``; ``picks``: name of its output of indices, of shape ``info``."""

    node: NodeProto
    picks: str
    ranked: ValueInfoProto
    info: ValueInfoProto


def ranking_nodes(model: ModelProto) -> list[RankingNode]:
    """Return the TopK, ArgMax and ArgMin nodes of a model's main graph whose shapes are known."""
    inferred = infer_shapes(model).graph
    known = {one.name: one for one in (*inferred.value_info, *inferred.input, *inferred.output)}
    found = []
    for node in model.graph.node:
        if node.op_type in ("TopK", "ArgMax", "ArgMin") and not node.domain:
            index = node.output[-1]
            if index in known and node.input[0] in known:
                found.append(RankingNode(node, index, known[node.input[0]], known[index]))
    return found


def picks_inside(
    model: ModelProto, made: Sequence[RankingNode], inputs: Sequence[Array], dtype: str
) -> dict[str, Array]:
    """Return the indices that these nodes compute on these inputs, by the name of the index output."""
    from engine.onnx import copy_model

    shown = copy_model(model)
    has = {one.name for one in shown.graph.output}
    shown.graph.output.extend(one.info for one in made if one.picks not in has)
    outputs = dict(zip([one.name for one in shown.graph.output], answers(shown, inputs, dtype), strict=True))
    return {one.picks: outputs[one.picks] for one in made}


def picks_given(model: ModelProto, made: Sequence[RankingNode], wanted: Sequence[Array]) -> dict[str, Array]:
    """Return the indices among a source model's outputs, by the name of the index output."""
    ends = {one.name: array for one, array in zip(model.graph.output, wanted, strict=True)}
    writers = {name: node for node in model.graph.node for name in node.output}
    shapes = {one.picks: len(one.info.type.tensor_type.shape.dim) for one in made}
    found = {}
    for name, array in ends.items():
        source = name
        while source not in shapes and source in writers and writers[source].op_type in _SAME:
            source = writers[source].input[0]
        if source in shapes and array.ndim == shapes[source]:
            found[source] = array.astype(np.int64)
    return found


def with_picks(
    model: ModelProto, made: Sequence[RankingNode], inputs: Sequence[Array], picks: Mapping[str, Array]
) -> tuple[list[Array], float]:
    """Run a float32 model with given indices (int64, by name) instead of those its ranking nodes compute.

    Return the outputs, and the largest gap between a picked value and the best one, relative to the largest of the
    best; infinity for invalid indices.
    """
    taken = [one for one in made if one.picks in picks]
    instrumented = _with_pick_inputs(model, taken)
    found = answers(instrumented, [*inputs, *(picks[one.picks] for one in taken)], "float32")
    count = len(model.graph.output)
    gaps = [_gap(one.node, ranked, picks[one.picks]) for one, ranked in zip(taken, found[count:], strict=True)]
    return found[:count], max(gaps, default=np.inf)


def _with_pick_inputs(model: ModelProto, taken: Sequence[RankingNode]) -> ModelProto:
    """Return a copy with the indices as extra inputs and the ranked values as extra outputs."""
    from onnx import TensorProto, helper

    from engine.onnx import copy_model

    instrumented = copy_model(model)
    nodes = {node.output[-1]: node for node in instrumented.graph.node}
    ends = {one.name for one in instrumented.graph.output}
    for number, one in enumerate(taken):
        node = nodes[one.picks]
        place = list(instrumented.graph.node).index(node)
        rank = len(one.info.type.tensor_type.shape.dim)
        fed = f"pick{number}"
        instrumented.graph.input.append(
            helper.make_tensor_value_info(fed, TensorProto.INT64, [f"{fed}_{axis}" for axis in range(rank)])
        )
        values = [name for name in node.output[:-1] if name]
        made = [helper.make_node("Identity", [fed], [one.picks])]
        made += [helper.make_node("GatherElements", [node.input[0], fed], [name], axis=_axis(node)) for name in values]
        shown = instrumented.graph.output.add()
        shown.CopyFrom(one.ranked)
        shown.name = f"{fed}_ranked"
        made.append(helper.make_node("Identity", [node.input[0]], [shown.name]))
        del instrumented.graph.node[place]
        for new in reversed(made):
            instrumented.graph.node.insert(place, new)
    assert ends <= {one.name for one in instrumented.graph.output}  # noqa: S101 - outputs are only added
    return instrumented


def answers(model: ModelProto, inputs: Sequence[Array], dtype: str) -> list[Array]:
    """Return the outputs of a model on the baseline; floating-point inputs are cast to ``dtype``."""
    from engine.onnx import save_model

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.onnx")
        save_model(model, path)
        with open_engine("onnx", EngineSpec(ckpt=path, dtype=dtype)) as engine:
            return run(engine, inputs, dtype)


def run(engine: Engine, inputs: Sequence[Array], dtype: str) -> list[Array]:
    """Return an engine's outputs as a list; float32 inputs are cast to the engine's input dtypes."""
    half = [dtype == "float16" and tensor.dtype == np.float16 for tensor in engine.inputs]  # not integer inputs
    both = zip(inputs, half, strict=True)
    found = engine([x.astype(np.float16) if narrow and x.dtype == np.float32 else x for x, narrow in both])
    return found if isinstance(found, list) else [found]


def _axis(node: NodeProto) -> int:
    default = -1 if node.op_type == "TopK" else 0
    return next((attribute.i for attribute in node.attribute if attribute.name == "axis"), default)


def _gap(node: NodeProto, ranked: Array, picked: Array) -> float:
    """Return the largest gap between the picked and the best values, relative to the largest of the best."""
    flags = {attribute.name: attribute.i for attribute in node.attribute}
    axis = _axis(node)
    if node.op_type != "TopK" and not flags.get("keepdims", 1):
        picked = np.expand_dims(picked, axis)
    values, index = np.moveaxis(ranked.astype(np.float64), axis, -1), np.moveaxis(picked, axis, -1)
    size, count = values.shape[-1], index.shape[-1]
    if values.shape[:-1] != index.shape[:-1] or not ((index >= 0) & (index < size)).all() or np.isnan(values).any():
        return float("inf")
    if (np.diff(np.sort(index, axis=-1), axis=-1) == 0).any():
        return float("inf")  # an index occurs twice
    upward = node.op_type == "ArgMin" or (node.op_type == "TopK" and not flags.get("largest", 1))
    best = np.sort(values, axis=-1)
    best = best[..., :count] if upward else best[..., ::-1][..., :count]
    found = np.take_along_axis(values, index, axis=-1)
    if not flags.get("sorted", 1):
        found = np.sort(found, axis=-1) if upward else np.sort(found, axis=-1)[..., ::-1]
    with np.errstate(invalid="ignore"):
        gap = float(np.where(found == best, 0.0, np.abs(found - best)).max(initial=0.0))
    usual = np.abs(best)[np.abs(best) < _MASKED]
    scale = float((usual if usual.size else np.abs(best)).max(initial=0.0))
    return gap / scale if scale else (np.inf if gap else 0.0)
