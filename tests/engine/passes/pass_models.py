"""Small models for the pass tests, and their computation with ONNX Runtime."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from engine.backends.ort import HostSession

RNG = np.random.default_rng(7)


def node(op_type: str, inputs: Sequence[str], output: str | Sequence[str], **attributes: Any) -> onnx.NodeProto:
    outputs = [output] if isinstance(output, str) else list(output)
    return helper.make_node(op_type, list(inputs), outputs, name=f"{op_type}_{outputs[0]}", **attributes)


def build(
    nodes: Sequence[onnx.NodeProto],
    weights: dict[str, np.ndarray],
    x: Sequence[int | str],
    outputs: Sequence[str] = ("y",),
    *,
    opset: int = 17,
    kind: int = TensorProto.FLOAT,
) -> onnx.ModelProto:
    """Return a checked model with one input ``x`` and undeclared output shapes."""
    graph = helper.make_graph(
        list(nodes),
        "small",
        [helper.make_tensor_value_info("x", kind, list(x))],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    model = onnx.shape_inference.infer_shapes(model, strict_mode=True)
    onnx.checker.check_model(model)
    model.metadata_props.add(key="labels", value="zero,one")
    return model


def floats(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.asarray(RNG.standard_normal(shape)).astype(dtype)


def batch_norm(channels: int, prefix: str = "bn") -> dict[str, np.ndarray]:
    """Return gamma, beta, mean, variance of a batch norm with gammas of both signs."""
    names = [f"{prefix}_{part}" for part in ("gamma", "beta", "mean", "var")]
    arrays = [floats(channels), floats(channels), floats(channels), np.abs(floats(channels)) + np.float32(0.1)]
    return dict(zip(names, arrays, strict=True))


def ops(model: onnx.ModelProto) -> Counter[str]:
    return Counter(n.op_type for n in model.graph.node)


def compute(model: onnx.ModelProto, x: np.ndarray) -> list[np.ndarray]:
    return HostSession(model).run([x])
