"""The content of a model consists of its file and its external weight files."""

from __future__ import annotations

import os
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from support import DIGITS, SaveOnnx

from engine.onnx import external_names, file_hash, model_content
from engine.onnx.load import external_files


def divided(folder: Path, name: str = "weights.data") -> Path:
    """Write the digits' model with its weights in another file."""
    path = folder / "digits.onnx"
    model = onnx.load(str(DIGITS / "digits_dyn.onnx"))
    onnx.save(model, str(path), save_as_external_data=True, location=name, size_threshold=0)
    return path


def rewrite(path: Path) -> None:
    """Change one byte, and set the times of the file back."""
    before = path.stat()
    with path.open("r+b") as file:
        file.seek(before.st_size // 2)
        byte = file.read(1)[0]
        file.seek(before.st_size // 2)
        file.write(bytes([byte ^ 0x40]))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_a_model_in_one_file_has_the_hash_of_the_file() -> None:
    path = DIGITS / "digits_dyn.onnx"
    assert model_content(path).sha256 == sha256(path.read_bytes()).hexdigest() == file_hash(path)
    assert model_content(path).external == {}


@pytest.mark.parametrize("name", ["weights.data", "a folder/ü.bin"])
def test_changed_external_weights_change_the_hash(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    path = divided(tmp_path, name)
    before = model_content(path)
    assert list(before.external) == external_files(path) == [name]
    rewrite(tmp_path / name)
    assert model_content(path).model.sha256 == before.model.sha256
    assert model_content(path).sha256 != before.sha256
    rewrite(tmp_path / name)
    assert model_content(path).sha256 == before.sha256
    (tmp_path / name).unlink()
    assert model_content(path).external == {name: None}


def test_swapped_weight_files_change_the_hash(tmp_path: Path) -> None:
    model = onnx.load(str(DIGITS / "digits_dyn.onnx"))
    path = tmp_path / "digits.onnx"
    onnx.save(model, str(path), save_as_external_data=True, all_tensors_to_one_file=False, size_threshold=4096)
    one, other = sorted(tmp_path.glob("*[!x]"))[:2]
    before = model_content(path)
    assert len(before.external) > 2
    kept = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(kept)
    assert model_content(path).sha256 != before.sha256


def outside(name: str) -> TensorProto:
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=[1], data_location=TensorProto.EXTERNAL)
    for key, value in {"offset": "0", "location": f"{name}.data"}.items():
        tensor.external_data.add(key=key, value=value)
    return tensor


def in_an_initializer(graph: onnx.GraphProto, model: onnx.ModelProto) -> None:
    graph.initializer.append(outside("w"))


def in_a_constant(graph: onnx.GraphProto, model: onnx.ModelProto) -> None:
    graph.node.append(helper.make_node("Constant", [], ["c"], value=outside("w")))


def in_a_body(graph: onnx.GraphProto, model: onnx.ModelProto) -> None:
    body = helper.make_graph([helper.make_node("Constant", [], ["c"], value=outside("w"))], "b", [], [])
    inner = helper.make_graph([helper.make_node("If", ["x"], ["c"], then_branch=body, else_branch=body)], "b", [], [])
    graph.node.append(helper.make_node("If", ["x"], ["c"], then_branch=inner, else_branch=inner))


def in_a_list(graph: onnx.GraphProto, model: onnx.ModelProto) -> None:
    node = helper.make_node("Strange", [], ["c"], domain="own")
    node.attribute.append(onnx.AttributeProto(name="t", type=onnx.AttributeProto.TENSORS, tensors=[outside("w")]))
    graph.node.append(node)


def in_a_sparse_initializer(graph: onnx.GraphProto, model: onnx.ModelProto) -> None:
    graph.sparse_initializer.append(onnx.SparseTensorProto(values=outside("w"), dims=[4]))


def in_a_function(graph: onnx.GraphProto, model: onnx.ModelProto) -> None:
    node = helper.make_node("Constant", [], ["c"], value=outside("w"))
    model.functions.append(helper.make_function("own", "f", [], ["c"], [node], [helper.make_opsetid("", 17)]))


@pytest.mark.parametrize(
    "place", [in_an_initializer, in_a_constant, in_a_body, in_a_list, in_a_sparse_initializer, in_a_function]
)
def test_external_files_of_all_tensors_are_found(
    place: Callable[[onnx.GraphProto, onnx.ModelProto], None], tmp_path: Path
) -> None:
    graph = helper.make_graph([], "g", [], [])
    graph.initializer.append(numpy_helper.from_array(np.zeros(1 << 16, np.uint8), "location"))
    model = helper.make_model(graph)
    place(model.graph, model)
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())
    assert external_names(path) == ["w.data"]


def test_invalid_models_have_no_external_files(tmp_path: Path, save_onnx: SaveOnnx) -> None:
    content = (divided(tmp_path)).read_bytes()
    path = tmp_path / "cut.onnx"
    for end in (0, 1, 7, 100, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:end] + b"location")
        assert set(external_names(path)) <= {"weights.data"}
        assert model_content(path).model.sha256 == sha256(content[:end] + b"location").hexdigest()
    path.write_bytes(b"\xff" * 64 + b"location")
    assert external_names(path) == []
