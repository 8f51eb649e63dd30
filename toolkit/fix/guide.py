"""Order in which nodes are tried: overflowing nodes first, then by isolated error."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from toolkit.fix.masked import MaskedElements
from toolkit.fix.records import Feed
from toolkit.fix.samples import in_parts
from toolkit.graph.inputs import batched_specs
from toolkit.graph.nodes import Node

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

LARGEST = 65504.0
"""Largest float16."""

_FLOAT = 1
"""``onnx.TensorProto`` element type."""


def peaks(model: ModelProto, parts: Iterable[Feed], batch: int | None) -> dict[str, float]:
    """Return the largest finite magnitude of every float output of a node, over a data set in float32.

    Masked elements, such as -3.4e38 of an attention mask, are excluded. The graph returns one number per tensor, which
    keeps memory small. ``batch``: fixed batch of the model; ``None`` runs each part unchanged.
    """
    from engine.backends import HostSession

    measured, names = _with_peaks(model)
    session, specs = HostSession(measured), batched_specs(model)
    found = np.zeros(len(names))
    for call in (call for part in parts for call in in_parts(part.inputs, specs, batch)):
        feed = [np.asarray(array, spec.dtype) for array, spec in zip(call, session.inputs, strict=True)]
        sizes = np.array([float(value) for value in session.run(feed)])
        found = np.maximum(found, np.where(np.isfinite(sizes), sizes, 0.0))
    return dict(zip(names, found.tolist(), strict=True))


def _with_peaks(model: ModelProto) -> tuple[ModelProto, list[str]]:
    from onnx import helper, numpy_helper

    from engine.onnx import infer_shapes
    from engine.sdaa import widen

    measured = infer_shapes(widen(model))
    graph = measured.graph
    infos = (*graph.value_info, *graph.output)
    floats = {info.name for info in infos if info.type.tensor_type.elem_type == _FLOAT}
    names = [name for node in graph.node for name in node.output if name in floats]
    graph.initializer.append(numpy_helper.from_array(np.array([-1], np.int64), "@flat"))
    graph.initializer.append(numpy_helper.from_array(np.zeros(1, np.float32), "@zero"))
    del graph.value_info[:], graph.output[:]
    masked = MaskedElements(measured, floats)
    kept = {name: masked.without(name) for name in names}
    graph.node.extend(masked.nodes)
    for name in names:
        steps: list[tuple[str, list[str], dict[str, Any]]] = [
            ("Abs", [kept[name]], {}),
            ("Reshape", [f"{name}@Abs", "@flat"], {}),
            ("Concat", [f"{name}@Reshape", "@zero"], {"axis": 0}),  # since an empty tensor has no maximum
            ("ReduceMax", [f"{name}@Concat"], {"keepdims": 0}),
        ]
        graph.node.extend(helper.make_node(op, inputs, [f"{name}@{op}"], **how) for op, inputs, how in steps)
        graph.output.append(helper.make_tensor_value_info(f"{name}@ReduceMax", _FLOAT, []))
    return measured, names


def overflowing(
    model: ModelProto, nodes: Sequence[Node], largest: Mapping[str, float], keep: Callable[[NodeProto], bool]
) -> set[str]:
    """Return the names of nodes that write a stored tensor beyond float16, of nodes in its kernel, and of its readers.

    ``largest``: magnitudes by tensor name (:func:`peaks`); ``keep`` returns whether a node is float32 already.
    """
    from engine.sdaa import inner_tensors

    inner = inner_tensors(model.graph, keep)
    kernel: dict[str, list[str]] = {}
    beyond = {name for name, size in largest.items() if size > LARGEST and name not in inner}
    found: set[str] = set()
    for node in nodes:
        group = [node.name, *(name for source in node.inputs for name in kernel.get(source, ()))]
        kernel |= dict.fromkeys(inner.intersection(node.outputs), group)
        if beyond.intersection(node.outputs):
            found.update(group)
        if beyond.intersection(node.inputs):
            found.add(node.name)
    return found


def ranked(nodes: Sequence[Node], errors: Mapping[str, float], first: Iterable[str] = ()) -> list[str]:
    """Return node names by descending isolated error, those of ``first`` before the others; unknown errors are last."""
    leading = set(first)
    return sorted((n.name for n in nodes), key=lambda name: (name not in leading, -errors.get(name, -math.inf)))
