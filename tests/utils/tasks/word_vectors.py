"""A model of sentences that is made, not trained: a fixed vector per token, pooled outside or in the graph."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from utils.export.networks.small_tokenizers import small_tokenizer

WORDS = "a man plays the guitar someone an instrument rain is wet dogs bark at cats query passage music"
WIDTH = 24


def table(rows: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Return the vectors, V x WIDTH."""
    return np.random.default_rng(0).standard_normal((rows, WIDTH)).astype(np.float32)


def tokenizer() -> dict[str, Any]:
    return small_tokenizer("bert", [WORDS])


def word_vectors(path: Path, pooled: bool = False, **note: Any) -> Path:
    """Write the model and return its path; ``note``: what is stored under ``embedding``."""
    description = tokenizer()
    size = len(description["model"]["vocab"])
    ints = [
        helper.make_tensor_value_info(n, TensorProto.INT64, ["batch", "length"])
        for n in ("input_ids", "attention_mask")
    ]
    nodes = [helper.make_node("Gather", ["table", "input_ids"], ["tokens"])]
    shape: list[Any] = ["batch", "length", WIDTH]
    if pooled:
        nodes += [
            helper.make_node("Cast", ["attention_mask"], ["m"], to=TensorProto.FLOAT),
            helper.make_node("Unsqueeze", ["m", "last"], ["mask"]),
            helper.make_node("Mul", ["tokens", "mask"], ["kept"]),
            helper.make_node("ReduceSum", ["kept", "one"], ["total"], keepdims=0),
            helper.make_node("ReduceSum", ["mask", "one"], ["count"], keepdims=0),
            helper.make_node("Div", ["total", "count"], ["vectors"]),
        ]
        shape = ["batch", WIDTH]
    else:
        nodes += [helper.make_node("Cast", ["attention_mask"], ["m"], to=TensorProto.FLOAT)]
        nodes += [
            helper.make_node("Unsqueeze", ["m", "last"], ["mask"]),
            helper.make_node("Mul", ["tokens", "mask"], ["vectors"]),
        ]
    constants = {"table": table(size), "last": np.array([2], np.int64), "one": np.array([1], np.int64)}
    graph = helper.make_graph(
        nodes,
        "g",
        ints,
        [helper.make_tensor_value_info("vectors", TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(value, name) for name, value in constants.items() if pooled or name != "one"],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    notes = {"tokenizer": description, "max_length": 32, "vocabulary_size": size, "embedding": note}
    helper.set_model_props(model, {key: json.dumps(value) for key, value in notes.items()})
    onnx.save(model, path)
    return path


def pair_model(path: Path) -> Path:
    """Write a reranker: the logit is how often the token ``guitar`` stands in query and passage."""
    description = tokenizer()
    weights = np.zeros((len(description["model"]["vocab"]), 1), np.float32)
    weights[description["model"]["vocab"]["guitar"]] = 1
    ids = helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", "length"])
    nodes = [
        helper.make_node("Gather", ["weights", "input_ids"], ["values"]),
        helper.make_node("ReduceSum", ["values", "axis"], ["logits"], keepdims=0),
    ]
    constants = [numpy_helper.from_array(weights, "weights"), numpy_helper.from_array(np.array([1], np.int64), "axis")]
    out = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 1])
    graph = helper.make_graph(nodes, "g", [ids], [out], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    notes = {"tokenizer": description, "max_length": 32, "vocabulary_size": len(weights)}
    helper.set_model_props(model, {key: json.dumps(value) for key, value in notes.items()})
    onnx.save(model, path)
    return path
