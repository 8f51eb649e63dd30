"""Models of items that are made, not trained: what follows an item, and vectors of histories and items."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

PLACES = 4


def _write(path: Path, nodes: list[Any], inputs: list[Any], width: int, tables: dict[str, Any], notes: Any) -> Path:
    graph = helper.make_graph(
        nodes,
        "g",
        inputs,
        [helper.make_tensor_value_info("out", TensorProto.FLOAT, ["batch", width])],
        [numpy_helper.from_array(value, name) for name, value in tables.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    helper.set_model_props(model, {key: json.dumps(value) for key, value in notes.items()})
    onnx.checker.check_model(model)
    onnx.save(model, path)
    return path


def _last(table: str) -> list[Any]:
    """Return the nodes that look up the last item of a history."""
    return [
        helper.make_node("Gather", ["history", "end"], ["last"], axis=1),
        helper.make_node("Gather", [table, "last"], ["out"], axis=0),
    ]


def _history() -> Any:
    return helper.make_tensor_value_info("history", TensorProto.INT64, ["batch", PLACES])


def follows(path: Path, items: Sequence[str], table: np.ndarray, **notes: Any) -> Path:
    """Write a model whose scores are the row of ``table`` ((items + 1) x items) of the last item of a history."""
    tables = {"table": table.astype(np.float32), "end": np.array(PLACES - 1, np.int64)}
    return _write(path, _last("table"), [_history()], table.shape[1], tables, {"vocabulary": ["", *items], **notes})


def towers(folder: Path, items: Sequence[str], vectors: np.ndarray) -> dict[str, Path]:
    """Write two models whose vectors are the rows of ``vectors`` ((items + 1) x D); row 0 is an unknown item."""
    table, end = vectors.astype(np.float32), np.array(PLACES - 1, np.int64)
    width = table.shape[1]
    query = _write(
        folder / "query.onnx", _last("table"), [_history()], width, {"table": table, "end": end},
        {"vocabulary": ["", *items]},
    )  # fmt: skip
    item = _write(
        folder / "item.onnx",
        [
            helper.make_node("Gather", ["table", "item"], ["rows"], axis=0),
            helper.make_node("ReduceSum", ["rows", "axis"], ["out"], keepdims=0),
        ],
        [helper.make_tensor_value_info("item", TensorProto.INT64, ["batch", 1])],
        width,
        {"table": table, "axis": np.array([1], np.int64)},
        {"features": {"fields": [{"name": "id", "input": "item", "kind": "vocabulary", "values": list(items)}]}},
    )
    return {"query": query, "item": item}
