"""Forms of an ONNX file: names and metadata stay, a fixed batch becomes dynamic if rows prove it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from engine import ConfigError, EngineSpec, ModelError, open_engine
from utils.export.onnx_files import ExportError
from utils.export.onnx_source import export_onnx_file, open_dimensions, with_names

FLOAT, HALF = TensorProto.FLOAT, TensorProto.FLOAT16


def saved(
    file: Path,
    nodes: list[Any],
    inputs: dict[str, list[Any]],
    outputs: dict[str, list[Any]],
    weights: dict[str, Any],
    kind: int = FLOAT,
    **texts: str,
) -> Path:
    given, found = (
        [helper.make_tensor_value_info(name, kind, shape) for name, shape in part.items()] for part in (inputs, outputs)
    )
    constants = [numpy_helper.from_array(np.asarray(value), name) for name, value in weights.items()]
    graph = helper.make_graph(nodes, "g", given, found, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    helper.set_model_props(model, texts)
    onnx.save(model, file)
    return file


def product(file: Path, batch: Any = "N", **texts: str) -> Path:
    weight = np.random.default_rng(0).normal(0, 1, (6, 4)).astype(np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    return saved(file, nodes, {"x": [batch, 6]}, {"y": [batch, 4]}, {"w": weight}, FLOAT, **texts)


def shapes(file: Path) -> list[list[Any]]:
    graph = onnx.load(file).graph
    return [
        [d.dim_param or d.dim_value for d in info.type.tensor_type.shape.dim] for info in (*graph.input, *graph.output)
    ]


def texts_of(file: Path) -> dict[str, str]:
    return {one.key: one.value for one in onnx.load(file).metadata_props}


def test_three_forms_with_all_metadata(tmp_path: Path) -> None:
    source = product(tmp_path / "s.onnx", names="{0: 'a', 1: 'b', 2: 'c', 3: 'd'}", stride="32", own="not JSON {")
    results = export_onnx_file(source, tmp_path / "m", notes={"sample_rate": 8000}, provenance={"source": "us"})
    assert [one.path.name for one in results] == ["m.onnx", "m_dyn.onnx", "m_float16_dyn.onnx"]
    assert shapes(tmp_path / "m.onnx") == [[1, 6], [1, 4]]
    assert shapes(tmp_path / "m_dyn.onnx") == [["N", 6], ["N", 4]]
    assert onnx.load(tmp_path / "m_float16_dyn.onnx").graph.input[0].type.tensor_type.elem_type == HALF
    texts = texts_of(tmp_path / "m_dyn.onnx")
    assert texts["own"] == "not JSON {"
    assert texts["sample_rate"] == "8000"
    assert json.loads(texts["provenance"]) == {"source": "us"}
    assert float(texts["max_relative_error"]) == 0
    again = export_onnx_file(source, tmp_path / "n", notes={"sample_rate": 8000}, provenance={"source": "us"})
    assert [one.path.read_bytes() for one in again] == [one.path.read_bytes() for one in results]


def test_nodes_get_names_of_their_own(tmp_path: Path) -> None:
    nodes = [helper.make_node("Abs", ["x"], ["a"], "Abs"), helper.make_node("Neg", ["a"], ["b"])]
    nodes += [helper.make_node("Abs", ["b"], ["c"]), helper.make_node("Neg", ["c"], ["y"], "own")]
    source = saved(tmp_path / "s.onnx", nodes, {"x": ["N", 4]}, {"y": ["N", 4]}, {})
    export_onnx_file(source, tmp_path / "m", forms=["dyn"])
    assert [node.name for node in onnx.load(tmp_path / "m_dyn.onnx").graph.node] == ["Abs_0", "Neg_1", "Abs_2", "own"]


def test_provenance_of_the_source_stays(tmp_path: Path) -> None:
    source = product(tmp_path / "s.onnx", provenance='{"source": "theirs", "weights": "random"}')
    export_onnx_file(source, tmp_path / "m", forms=["dyn"], provenance={"source": "us"})
    assert json.loads(texts_of(tmp_path / "m_dyn.onnx")["provenance"])["source"] == "theirs"


def test_fixed_batch_with_a_reshape_becomes_dynamic(tmp_path: Path) -> None:
    weights = {"w": np.random.default_rng(0).normal(0, 1, (6, 4)).astype(np.float32), "flat": np.array([1, 6])}
    nodes = [helper.make_node("Reshape", ["x", "flat"], ["row"]), helper.make_node("MatMul", ["row", "w"], ["y"])]
    source = saved(tmp_path / "s.onnx", nodes, {"x": [1, 2, 3]}, {"y": [1, 4]}, weights)
    export_onnx_file(source, tmp_path / "m")
    assert shapes(tmp_path / "m.onnx") == [[1, 2, 3], [1, 4]]
    assert shapes(tmp_path / "m_dyn.onnx") == [["batch", 2, 3], ["batch", 4]]
    x = np.random.default_rng(1).normal(0, 1, (5, 2, 3)).astype(np.float32)
    with open_engine("onnx", EngineSpec(tmp_path / "m_dyn.onnx")) as engine:
        together = engine(x)
    with open_engine("onnx", EngineSpec(source)) as engine:
        alone = np.concatenate([engine(x[i : i + 1]) for i in range(5)])
    np.testing.assert_allclose(together, alone, rtol=1e-5, atol=1e-6)


def test_rows_that_depend_on_one_another_stay_static(tmp_path: Path) -> None:
    """A mean over axis 0 is that of one sample for batch 1, and of all for a free batch: the rows prove it."""
    nodes = [
        helper.make_node("ReduceMean", ["x"], ["mean"], axes=[0], keepdims=1),
        helper.make_node("Sub", ["x", "mean"], ["d"]),
    ]
    nodes += [helper.make_node("Add", ["d", "one"], ["y"])]
    source = saved(tmp_path / "s.onnx", nodes, {"x": [1, 4]}, {"y": [1, 4]}, {"one": np.float32(1)})
    with pytest.raises(ExportError) as caught:
        export_onnx_file(source, tmp_path / "m")
    assert [one.error is None for one in caught.value.results] == [True, False, False]
    assert sorted(one.name for one in tmp_path.glob("m*")) == ["m.onnx"]


def test_no_batch_axis(tmp_path: Path) -> None:
    nodes = [helper.make_node("Abs", ["x"], ["y"])]
    source = saved(tmp_path / "s.onnx", nodes, {"x": [5, 4]}, {"y": [5, 4]}, {})
    with pytest.raises(ExportError, match="only the static form is written"):
        export_onnx_file(source, tmp_path / "m")
    assert shapes(tmp_path / "m.onnx") == [[5, 4], [5, 4]]


def test_dynamic_sizes(tmp_path: Path) -> None:
    nodes = [helper.make_node("Abs", ["x"], ["y"])]
    source = saved(tmp_path / "s.onnx", nodes, {"x": [None, 3, "side", None]}, {"y": [None, 3, "side", None]}, {})
    assert open_dimensions(with_names(onnx.load(source))) == {"side": ("x", 2), "x_3": ("x", 3)}
    with pytest.raises(ModelError, match="dynamic dimension 'side'; give its size"):
        export_onnx_file(source, tmp_path / "m")
    export_onnx_file(source, tmp_path / "m", sizes={"side": 8, "x_3": 6})
    assert shapes(tmp_path / "m.onnx")[0] == [1, 3, 8, 6]
    assert shapes(tmp_path / "m_dyn.onnx")[0] == ["batch", 3, "side", "x_3"]


def test_overflow_leaves_float16_out(tmp_path: Path) -> None:
    nodes = [helper.make_node("Mul", ["x", "large"], ["y"])]
    source = saved(tmp_path / "s.onnx", nodes, {"x": ["N", 4]}, {"y": ["N", 4]}, {"large": np.float32(1e6)})
    with pytest.raises(ExportError, match="above float16") as caught:
        export_onnx_file(source, tmp_path / "m")
    assert [one.error is None for one in caught.value.results] == [True, True, False]


def test_float16_source_becomes_float32(tmp_path: Path) -> None:
    weight = np.random.default_rng(0).normal(0, 1, (6, 4)).astype(np.float16)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    half = saved(tmp_path / "h.onnx", nodes, {"x": ["N", 6]}, {"y": ["N", 4]}, {"w": weight}, HALF)
    results = export_onnx_file(half, tmp_path / "m")
    assert all(one.max_relative_error is not None and one.max_relative_error < 5e-3 for one in results)
    made = onnx.load(tmp_path / "m_dyn.onnx").graph
    assert made.input[0].type.tensor_type.elem_type == made.output[0].type.tensor_type.elem_type == FLOAT
    np.testing.assert_array_equal(numpy_helper.to_array(made.initializer[0]), weight.astype(np.float32))
    assert onnx.load(tmp_path / "m_float16_dyn.onnx").graph.input[0].type.tensor_type.elem_type == HALF


def test_symbols_that_no_flag_can_name(tmp_path: Path) -> None:
    nodes = [helper.make_node("Abs", ["a/x:0"], ["y"])]
    source = saved(tmp_path / "s.onnx", nodes, {"a/x:0": ["batch size", "seq len, max"]}, {"y": [None, None]}, {})
    export_onnx_file(source, tmp_path / "m", sizes={"seq_len_max": 5}, forms=["static", "dyn"])
    assert shapes(tmp_path / "m_dyn.onnx")[0] == ["batch_size", "seq_len_max"]
    assert shapes(tmp_path / "m.onnx")[0] == [1, 5]


def test_batch_behind_the_time(tmp_path: Path) -> None:
    nodes = [helper.make_node("Abs", ["x"], ["y"])]
    source = saved(tmp_path / "s.onnx", nodes, {"x": ["frames", "batch", 4]}, {"y": ["frames", "batch", 4]}, {})
    assert open_dimensions(with_names(onnx.load(source))) == {"frames": ("x", 0)}
    export_onnx_file(source, tmp_path / "m", sizes={"frames": 7})
    assert shapes(tmp_path / "m.onnx")[0] == [7, 1, 4]


def test_batch_that_only_the_graph_tells(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    sizes = {"w": (1, 12, 6), "r": (1, 12, 4)}
    weights = {name: rng.normal(0, 0.5, size).astype(np.float32) for name, size in sizes.items()}
    nodes = [helper.make_node("GRU", ["x", "w", "r"], ["", "y"], hidden_size=4)]
    source = saved(tmp_path / "s.onnx", nodes, {"x": ["T", "N", 6]}, {"y": [1, "N", 4]}, weights)
    assert open_dimensions(with_names(onnx.load(source))) == {"T": ("x", 0)}
    export_onnx_file(source, tmp_path / "m", sizes={"T": 5}, forms=["dyn"])
    assert shapes(tmp_path / "m_dyn.onnx") == [["T", "batch", 6], [1, "batch", 4]]


def test_file_of_ir_3(tmp_path: Path) -> None:
    source = product(tmp_path / "s.onnx")
    model = onnx.load(source)
    model.ir_version = 3
    model.graph.input.append(helper.make_tensor_value_info("w", FLOAT, [6, 4]))
    model.opset_import[0].version = 8
    onnx.save(model, source)
    export_onnx_file(source, tmp_path / "m")
    assert [one.name for one in onnx.load(tmp_path / "m_dyn.onnx").graph.input] == ["x"]


def test_refused(tmp_path: Path) -> None:
    (tmp_path / "t.onnx").write_text("no", encoding="utf-8")
    with pytest.raises(ModelError, match="not ONNX"):
        export_onnx_file(tmp_path / "t.onnx", tmp_path / "m")
    with pytest.raises(ConfigError, match="sample_rate"):
        export_onnx_file(product(tmp_path / "s.onnx"), tmp_path / "m", notes={"sample_rate": -1})
    assert list(tmp_path.glob("m*")) == []
