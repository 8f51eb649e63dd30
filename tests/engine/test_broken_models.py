"""Models that ONNX Runtime refuses are refused by every target, so that none computes with undefined memory."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from support import DIGITS, ROOT, TVM, computes_bfloat16

from engine import EngineSpec, ModelError, TecoInferError, open_engine

TARGETS = [
    ("onnx", None),
    ("cpu", None),
    ("cpu", None),  # remembered
    ("cpu", "bfloat16"),
    ("sdaa", "float32"),
    ("sdaa", "float16"),
]
ENGINES = TARGETS if importlib.util.find_spec("openvino") else [t for t in TARGETS if t[1] != "bfloat16"]

Change = Callable[[onnx.GraphProto], object]


def of_node(name: str, value: object) -> Change:
    return lambda graph: graph.node[1].attribute.append(helper.make_attribute(name, value))


def weight(place: int, array: np.ndarray) -> Change:
    names = "wb"
    return lambda graph: graph.initializer[place].CopyFrom(numpy_helper.from_array(array, names[place]))


def field(place: int, name: str, values: list[float]) -> Change:
    def change(graph: onnx.GraphProto) -> None:
        graph.initializer[place].ClearField("raw_data")
        getattr(graph.initializer[place], name).extend(values)

    return change


def raw(cut: slice) -> Change:
    return lambda graph: setattr(graph.initializer[0], "raw_data", graph.initializer[0].raw_data[cut])


def constant(content: bytes | None) -> Change:
    def change(graph: onnx.GraphProto) -> None:
        given = [] if content is None else [helper.make_attribute("value", graph.initializer[1])]
        node = helper.make_node("Constant", [], ["b"], "c")
        node.attribute.extend(given)
        if content is not None:
            node.attribute[0].t.raw_data = content
        del graph.initializer[1]
        graph.node.insert(0, node)

    return change


REFUSED: dict[str, Change] = {
    "initialiser missing": lambda g: g.initializer.pop(1),
    "initialiser without data": field(0, "float_data", []),
    "initialiser with the data of another type": field(0, "int64_data", [1] * 8),
    "too few floats": field(0, "float_data", [1] * 5),
    "data cut short": raw(slice(0, 24)),
    "data missing": raw(slice(0, 0)),
    "initialiser of another type": weight(1, np.ones(2, np.int64)),
    "initialiser without a type": lambda g: setattr(g.initializer[1], "data_type", 0),
    "weight of another shape": weight(0, np.ones((5, 2), np.float32)),
    "bias of another shape": weight(1, np.ones(3, np.float32)),
    "negative size": lambda g: g.initializer[0].dims.__setitem__(0, -4),
    "input from nowhere": lambda g: g.node[1].input.__setitem__(1, "nobody"),
    "output from nowhere": lambda g: setattr(g.output[0], "name", "nobody"),
    "output of another type": lambda g: setattr(g.output[0].type.tensor_type, "elem_type", TensorProto.INT64),
    "input without a type": lambda g: setattr(g.input[0].type.tensor_type, "elem_type", 0),
    "two writers": lambda g: g.node[0].output.__setitem__(0, "y"),
    "written input": lambda g: g.node[0].output.__setitem__(0, "x"),
    "input twice": lambda g: g.input.append(g.input[0]),
    "two nodes of a name": lambda g: setattr(g.node[1], "name", "m"),
    "cycle": lambda g: g.node[0].input.__setitem__(0, "y"),
    "unknown operator": lambda g: setattr(g.node[1], "op_type", "Addd"),
    "unknown domain": lambda g: setattr(g.node[1], "domain", "my.ops"),
    "too many inputs": lambda g: g.node[1].input.append("b"),
    "too few inputs": lambda g: g.node[1].input.pop(),
    "too many outputs": lambda g: g.node[1].output.append("z"),
    "unknown attribute": of_node("axis", 1),
    "attribute of another type": lambda g: (setattr(g.node[1], "op_type", "Concat"), of_node("axis", "one")(g)),
    "attribute missing": lambda g: setattr(g.node[1], "op_type", "Concat"),
    "constant without a value": constant(None),
    "constant cut short": constant(b"\0\0\x80?"),
    "no nodes": lambda g: g.ClearField("node"),
    "no outputs": lambda g: g.ClearField("output"),
}

EXTERNAL: dict[str, Callable[[TensorProto, Path], object]] = {
    "missing": lambda tensor, data: data.unlink(),
    "cut short": lambda tensor, data: data.write_bytes(data.read_bytes()[:-4]),
    "empty": lambda tensor, data: data.write_bytes(b""),
    "offset beyond the end": lambda tensor, data: tensor.external_data.add(key="offset", value="9999"),
    "wrong length": lambda tensor, data: tensor.external_data.add(key="length", value="12"),
    "nowhere": lambda tensor, data: tensor.ClearField("external_data"),
    "outside": lambda tensor, data: setattr(tensor.external_data[0], "value", "../w.bin"),
    "folder": lambda tensor, data: setattr(tensor.external_data[0], "value", "."),
}

VERSIONS = {"opset 999": (999, 8), "opset 1": (1, 8), "IR 99": (17, 99)}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from engine.backends import trial

    monkeypatch.setenv("TECO_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(trial, "TRIAL_SECONDS", 0.01)


def model(opset: int = 17, ir_version: int = 8) -> onnx.ModelProto:
    x, y = helper.make_tensor_value_info("x", 1, ["N", 4]), helper.make_tensor_value_info("y", 1, ["N", 2])
    weights = [numpy_helper.from_array(np.ones(shape, np.float32), name) for name, shape in (("w", (4, 2)), ("b", 2))]
    nodes = [helper.make_node("MatMul", ["x", "w"], ["t"], "m"), helper.make_node("Add", ["t", "b"], ["y"], "a")]
    graph = helper.make_graph(nodes, "g", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir_version)


def written(made: onnx.ModelProto, folder: Path) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(made.SerializeToString())
    return path


def all_refuse(path: Path) -> None:
    said = {}
    for target, dtype in ENGINES:
        with pytest.raises(ModelError) as error:
            open_engine(target, EngineSpec(ckpt=path, batch_size=3, dtype=dtype)).release()
        said[target, dtype] = str(error.value)
    assert all(str(path) in line or target == "sdaa" for (target, _), line in said.items())
    assert not any("\n" in line for line in said.values())
    assert said["cpu", None] == said["onnx", None]


def test_the_whole_model_is_taken(tmp_path: Path) -> None:
    path = written(model(), tmp_path)
    for target, dtype in ENGINES:
        if dtype == "bfloat16" and not computes_bfloat16():
            continue
        with open_engine(target, EngineSpec(ckpt=path, batch_size=3, dtype=dtype)) as engine:
            assert np.all(np.asarray(engine([np.ones((3, 4), engine.inputs[0].dtype)])) == 5)


@pytest.mark.filterwarnings("ignore:what .* writes has a type unknown")
@pytest.mark.parametrize("fault", REFUSED)
def test_a_broken_graph(fault: str, tmp_path: Path) -> None:
    broken = model()
    REFUSED[fault](broken.graph)
    all_refuse(written(broken, tmp_path))


@pytest.mark.parametrize("fault", EXTERNAL)
def test_broken_external_data(fault: str, tmp_path: Path) -> None:
    broken = model()
    tensor, data = broken.graph.initializer[0], tmp_path / "w.bin"
    data.write_bytes(tensor.raw_data)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="w.bin")
    EXTERNAL[fault](tensor, data)
    all_refuse(written(broken, tmp_path))


@pytest.mark.parametrize("versions", VERSIONS.values(), ids=VERSIONS)
def test_versions_out_of_range(versions: tuple[int, int], tmp_path: Path) -> None:
    all_refuse(written(model(*versions), tmp_path))


def test_data_that_goes_missing_after_the_trial(tmp_path: Path) -> None:
    """The model file is that of the cached trial; its external data has changed."""
    path, data = tmp_path / "model.onnx", tmp_path / "model.onnx.data"
    onnx.save(model(), str(path), save_as_external_data=True, location=data.name, size_threshold=0)
    open_engine("cpu", EngineSpec(ckpt=path, batch_size=3)).release()
    data.write_bytes(data.read_bytes()[:-8])
    all_refuse(path)


@pytest.mark.parametrize("target", ["cpu", "onnx", "sdaa", *TVM])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int8"])
def test_a_file_that_does_not_exist(target: str, dtype: str, tmp_path: Path) -> None:
    if dtype in ("bfloat16", "int8") and target != "cpu":
        return
    with pytest.raises(TecoInferError, match=r"none\.onnx does not exist"):
        open_engine(target, EngineSpec(ckpt=tmp_path / "none.onnx", dtype=dtype))


@pytest.mark.slow
@pytest.mark.parametrize("target", ["onnx", "cpu"])
def test_the_scripts_exit_code(target: str, tmp_path: Path) -> None:
    broken = onnx.load(str(DIGITS / "digits_dyn.onnx"))
    largest = max(broken.graph.initializer, key=lambda tensor: len(tensor.raw_data))
    largest.ClearField("raw_data")
    command = [sys.executable, str(DIGITS / "example_valid.py"), "--ckpt", str(written(broken, tmp_path))]
    done = subprocess.run([*command, "--target", target], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 2, done.stderr
    assert f"weight {largest.name!r} holds 0 of the" in done.stderr
    assert "eval_metric" not in done.stdout
