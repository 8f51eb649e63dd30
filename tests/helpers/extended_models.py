"""Models with further operators after one of their outputs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, parser

Step = tuple[str, dict[str, Any]]
"""An operator and its attributes; ``inputs``: further input arrays."""

SOFTMAX, LOG_SOFTMAX = [("Softmax", {"axis": -1})], [("LogSoftmax", {"axis": -1})]
SIGMOID: list[Step] = [("Sigmoid", {})]
TO_FLOAT: Step = ("Cast", {"to": TensorProto.FLOAT})


def chosen(axis: int, keepdims: int = 0) -> list[Step]:
    """Return the step that chooses a class."""
    return [("ArgMax", {"axis": axis, "keepdims": keepdims})]


def extended(
    source: Path,
    target: Path,
    steps: Sequence[Step],
    rank: int,
    output: int = 0,
    kind: int = TensorProto.FLOAT,
    notes: dict[str, Any] | None = None,
    without: Sequence[str] = (),
) -> Path:
    """Write a model with operators after an output, which keeps its name, and return its path.

    Args:
        source, target: files. steps: in their order. rank: dimensions of the new output. output: its place.
        kind: of its values. notes: further metadata, written as JSON. without: keys of the metadata that are left out.
    """
    model = onnx.load(source)
    graph, name = model.graph, model.graph.output[output].name
    batch = graph.output[output].type.tensor_type.shape.dim[0].dim_param or "batch"
    for node in graph.node:
        for names in (node.input, node.output):
            names[:] = [f"{name}_before" if one == name else one for one in names]
    last = f"{name}_before"
    for place, (op, attributes) in enumerate(steps):
        constants = [f"{name}_{place}_{i}" for i in range(len(attributes.get("inputs", ())))]
        for constant, array in zip(constants, attributes.get("inputs", ()), strict=True):
            graph.initializer.append(numpy_helper.from_array(np.asarray(array), constant))
        made = name if place == len(steps) - 1 else f"{name}_{place}"
        own = {key: value for key, value in attributes.items() if key != "inputs"}
        graph.node.append(helper.make_node(op, [last, *constants], [made], **own))
        last = made
    dims = [batch, *(f"{name}_size_{place}" for place in range(1, rank))]
    graph.output[output].CopyFrom(helper.make_tensor_value_info(name, kind, dims))
    kept = [one for one in model.metadata_props if one.key not in without and one.key not in (notes or {})]
    kept = [onnx.StringStringEntryProto(key=one.key, value=one.value) for one in kept]
    del model.metadata_props[:]
    model.metadata_props.extend(kept)
    for key, value in (notes or {}).items():
        model.metadata_props.add(key=key, value=json.dumps(value))
    onnx.checker.check_model(model)
    onnx.save(model, target)
    return target


def small_model(
    path: Path, body: str, y: str, x: str = "float[N, 4] x", weights: dict[str, Any] | None = None, **notes: Any
) -> Path:
    """Write a model in ONNX's textual syntax and return its path.

    Args:
        path: the file. body: its nodes. y, x: outputs and inputs. weights: arrays by name. notes: metadata, as JSON.
    """
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]>\ng ({x}) => ({y}) {{ {body} }}')
    for name, array in (weights or {}).items():
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
    for key, value in notes.items():
        model.metadata_props.add(key=key, value=json.dumps(value))
    onnx.save(model, path)
    return path
