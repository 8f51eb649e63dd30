"""The voice encoder as a graph: three LSTM layers and a projection, 1.6 s of mel features in, 256 values out.

Architecture: Wan et al. 2018, "Generalized End-to-End Loss for Speaker Verification", as trained by Resemblyzer: the
last state of the third layer, projected, through a ReLU, normalised to length 1.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from engine import Array, ModelError

FRAMES, MELS, WIDTH, LAYERS = 160, 40, 256, 3
"""Frames of 10 ms per call, mel bands, size of an embedding, and layers."""

OPSET = 17

KEPT = tuple(f"lstm.{kind}_{part}_l{i}" for i in range(LAYERS) for kind in ("weight", "bias") for part in ("ih", "hh"))
"""Weights of the layers; ``similarity_weight`` and ``similarity_bias`` are only used in training."""

SHAPES = {
    **{name: (4 * WIDTH,) for name in KEPT if "bias" in name},
    **{name: (4 * WIDTH, WIDTH) for name in KEPT if "weight" in name},
    "lstm.weight_ih_l0": (4 * WIDTH, MELS),
    "linear.weight": (WIDTH, WIDTH),
    "linear.bias": (WIDTH,),
}
"""Names and shapes that the file must contain."""


def checked(state: Mapping[str, Array], file: str) -> dict[str, Array]:
    """Return the weights that the graph needs, float32.

    Raises:
        ModelError: one is missing, or has another shape.
    """
    for name, shape in SHAPES.items():
        found = tuple(np.shape(state[name])) if name in state else None
        if found != shape:
            raise ModelError(f"{file}: {name} is {'missing' if found is None else found}, not {shape}; fetch it again")
    return {name: np.asarray(state[name], np.float32) for name in SHAPES}


def _gates(values: Array) -> Array:
    """Reorder the four gates from PyTorch (input, forget, cell, output) to ONNX (input, output, forget, cell)."""
    first, forget, cell, out = np.split(values, 4)
    return np.concatenate([first, out, forget, cell])[None]


def build(weights: Mapping[str, Array], dynamic: bool) -> ModelProto:
    """Return the model, ``mels`` N x 160 x 40 in and ``description`` N x 256 out, for any N or for one."""
    held, nodes = [], []

    def hold(name: str, values: Array) -> str:
        held.append(numpy_helper.from_array(np.ascontiguousarray(values), name))
        return name

    nodes.append(helper.make_node("Transpose", ["mels"], ["frames"], name="frames", perm=[1, 0, 2]))
    x = "frames"
    for i in range(LAYERS):
        own = {kind: [weights[f"lstm.{kind}_{part}_l{i}"] for part in ("ih", "hh")] for kind in ("weight", "bias")}
        inner, outer = (hold(f"{i}.{name}", _gates(w)) for name, w in zip("WR", own["weight"], strict=True))
        bias = hold(f"{i}.B", np.concatenate([_gates(w) for w in own["bias"]], axis=1))
        last = i == LAYERS - 1
        outputs = ["", "state"] if last else [f"{i}.Y"]
        nodes.append(helper.make_node("LSTM", [x, inner, outer, bias], outputs, name=f"lstm{i}", hidden_size=WIDTH))
        if not last:
            x = f"{i}.out"
            axis = hold(f"{i}.axis", np.array([1], np.int64))
            nodes.append(helper.make_node("Squeeze", [f"{i}.Y", axis], [x], name=f"squeeze{i}"))
    axis = hold("axis", np.array([0], np.int64))
    nodes.append(helper.make_node("Squeeze", ["state", axis], ["last"], name="last"))
    matrix, bias = hold("linear.weight", weights["linear.weight"]), hold("linear.bias", weights["linear.bias"])
    nodes.append(helper.make_node("Gemm", ["last", matrix, bias], ["projected"], name="linear", transB=1))
    nodes.append(helper.make_node("Relu", ["projected"], ["positive"], name="relu"))
    nodes.append(helper.make_node("LpNormalization", ["positive"], ["description"], name="length", axis=1, p=2))
    batch = "batch" if dynamic else 1
    made = helper.make_graph(
        nodes,
        "voice_encoder",
        [helper.make_tensor_value_info("mels", TensorProto.FLOAT, [batch, FRAMES, MELS])],
        [helper.make_tensor_value_info("description", TensorProto.FLOAT, [batch, WIDTH])],
        held,
    )
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
