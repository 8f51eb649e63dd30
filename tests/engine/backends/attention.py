"""A small transformer as exporters write them: a mask of -3.4e38, products of activations, and a few large channels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import numpy_helper

from engine.base import Array

WIDTH, TOKENS = 32, 12

TEXT = """<ir_version: 8, opset_import: ["" : 17]>
g (float[N,S,32] x, int64[N,S] mask) => (float[N,32] y)
{
    h = LayerNormalization<axis=-1>(x, scale, shift)
    q0 = MatMul(h, wq)
    q = Mul(q0, eighth)
    k0 = MatMul(h, wk)
    k = Transpose<perm=[0,2,1]>(k0)
    v0 = MatMul(h, wv)
    v = Add(bv, v0)
    scores = MatMul(q, k)
    kept = Cast<to=9>(mask)
    row = Unsqueeze(kept, one)
    low = Where(row, zero, lowest)
    masked = Add(scores, low)
    p = Softmax<axis=-1>(masked)
    seen = MatMul(p, v)
    told = MatMul(seen, wo)
    r = Add(told, x)
    h2 = LayerNormalization<axis=-1>(r, scale, shift)
    f = MatMul(h2, w1)
    g0 = Relu(f)
    f2 = MatMul(g0, w2)
    r2 = Add(f2, r)
    h3 = LayerNormalization<axis=-1>(r2, even, shift)
    weight = Cast<to=1>(mask)
    column = Unsqueeze(weight, last)
    summed = Mul(h3, column)
    y = ReduceSum<keepdims=0>(summed, one)
}"""


def transformer() -> onnx.ModelProto:
    """Return the model: ``x`` (N, S, 32) and ``mask`` (int64, (N, S)) to ``y`` (N, 32)."""
    random = np.random.default_rng(0)
    model = onnx.parser.parse_model(TEXT)
    scale = np.exp(random.normal(0, 0.5, WIDTH))
    scale[[3, 17]] *= 40  # what trained transformers have
    arrays: dict[str, Array] = {"scale": scale, "even": np.ones(WIDTH), "shift": random.normal(0, 0.1, WIDTH)}
    shapes = dict.fromkeys(("wq", "wk", "wv", "wo"), (WIDTH, WIDTH)) | {"w1": (WIDTH, 64), "w2": (64, WIDTH)}
    arrays |= {name: random.normal(0, shape[0] ** -0.5, shape) for name, shape in shapes.items()}
    for name in ("wq", "wk", "wv", "w1"):  # training makes the weights of large channels small
        arrays[name][[3, 17]] /= 40
    arrays |= {"bv": random.normal(0, 0.1, WIDTH), "eighth": np.array(WIDTH**-0.5)}
    arrays |= {"zero": np.array(0.0), "lowest": np.array(np.finfo(np.float32).min)}
    for name, array in arrays.items():
        model.graph.initializer.append(numpy_helper.from_array(array.astype(np.float32), name))
    for name, axis in {"one": 1, "last": 2}.items():
        model.graph.initializer.append(numpy_helper.from_array(np.array([axis], np.int64), name))
    return model


def calls(count: int, seed: int = 1) -> list[list[Array]]:
    """Return calls of one sample: its tokens, and a mask whose last places are 0."""
    random = np.random.default_rng(seed)
    lengths: Sequence[int] = random.integers(3, TOKENS, count).tolist()
    masks = [(np.arange(TOKENS) < length).astype(np.int64)[None] for length in lengths]
    return [[random.standard_normal((1, TOKENS, WIDTH), np.float32), mask] for mask in masks]
