"""Bad input of `teco adapt`: one line with the value and the fix, and nothing in the repository."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import NodeProto, helper, numpy_helper

from engine import TecoInferError
from toolkit.adapt.cli import main
from toolkit.adapt.licences import forbids


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("project", "here"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "project"


def model(folder: Path, **texts: str) -> Path:
    """Write a network of one product, x float32 N x 3 to y float32 N x 2, with metadata."""
    weight = numpy_helper.from_array(np.eye(3, 2, dtype=np.float32), "w")
    ends = [helper.make_tensor_value_info(name, 1, ["N", size]) for name, size in (("x", 3), ("y", 2))]
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", ends[:1], ends[1:], [weight])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    helper.set_model_props(made, texts)
    onnx.save(made, folder / "given.onnx")
    return folder / "given.onnx"


def refused(root: Path, *words: str) -> str:
    """Return the message of an error, which has one line; nothing was created below the root."""
    with pytest.raises(TecoInferError) as caught:
        main(words, root)
    assert list(root.iterdir()) == []
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_missing_and_wrong_files(root: Path, tmp_path: Path) -> None:
    assert "nothing.onnx does not exist" in refused(root, str(tmp_path / "nothing.onnx"))
    (tmp_path / "text.onnx").write_text("hello", encoding="utf-8")
    assert "not ONNX" in refused(root, str(tmp_path / "text.onnx"))
    assert "no such file or folder" in refused(root, "resnet50")
    assert "no such file or folder" in refused(root, "")
    assert "timm:" in refused(root, "tim:resnet18")
    assert "net.py does not exist" in refused(root, f"{tmp_path / 'net.py'}:build", "--shape", "x=1,3")
    assert "has no config.json" in refused(root, str(tmp_path))
    assert "two equal signs" in refused(root, "pip:magika/model.onnx")
    assert "unknown package 'nothing_such'" in refused(root, "fetch:nothing_such/a.onnx")


def one_node(file: Path, node: NodeProto, inputs: dict[str, tuple[int, list[Any]]], output: int) -> Path:
    """Write a model of one node, with its inputs (type and shape by name) and the type of its output ``y``."""
    ends = [helper.make_tensor_value_info(name, *one) for name, one in inputs.items()]
    graph = helper.make_graph([node], "g", ends, [helper.make_tensor_value_info("y", output, None)])
    sets = [helper.make_opsetid("", 17), helper.make_opsetid("com.acme", 1)]
    onnx.save(helper.make_model(graph, opset_imports=sets, ir_version=8), file)
    return file


def test_operators_without_a_rewrite(root: Path, tmp_path: Path) -> None:
    node = helper.make_node("NonMaxSuppression", ["boxes", "scores"], ["y"], "post/nms")
    boxes = one_node(tmp_path / "a.onnx", node, {"boxes": (1, [1, 9, 4]), "scores": (1, [1, 2, 9])}, 7)
    message = refused(root, str(boxes))
    assert "sdaa lacks NonMaxSuppression (node 'post/nms': " in message
    assert "run NMS in the postprocessing" in message
    node = helper.make_node("FancyAct", ["x"], ["y"], "act/fancy", domain="com.acme")
    message = refused(root, str(one_node(tmp_path / "b.onnx", node, {"x": (1, ["N", 4])}, 1)))
    assert "sdaa lacks com.acme::FancyAct (node 'act/fancy': " in message
    assert "no rewrite of it is known: write it as a custom operator" in message


def test_module_without_shapes(root: Path, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text("def build():\n    return None\n", encoding="utf-8")
    assert "--shape x=1,3,224,224" in refused(root, f"{tmp_path / 'net.py'}:build")
    assert "defines no function 'bild'; did you mean 'build'?" in refused(root, f"{tmp_path / 'net.py'}:bild")
    (tmp_path / "half.py").write_text("def build():\n    return (\n", encoding="utf-8")
    assert "half.py:2: cannot be read as Python" in refused(root, f"{tmp_path / 'half.py'}:build")
    assert "not the name of a function" in refused(root, f"{tmp_path / 'net.py'}:build()")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--task", "clasification"], "did you mean 'classification'"),
        (["--data", "nowhere"], "--data nowhere does not exist"),
        (["--golden", "nowhere.npz"], "--golden nowhere.npz does not exist"),
        (["--name", "My Model"], "write 'my_model'"),
        (["--dim", "seq"], "is not NAME=N"),
        (["--dim", "other=4"], "has no dynamic dimension 'other'"),
        (["--note", "labels"], "is not KEY=JSON"),
        (["--note", "class_labels=cat"], "is not JSON"),
        (["--note", "class_labels=@nothing.json"], "is not JSON"),
        (["--input_dtype", "x=complex"], "is not INPUT=TYPE"),
        (["--only", "chek"], "did you mean 'check'"),
        (["--only", "check"], "needs the results of document"),
        (["--default", "random"], "is not FLAG=VALUE"),
        (["--licence", "CC-BY-NC-4.0"], "forbids commercial use"),
        (["--batch_size", "0"], "batch_size"),
        (["--weights_url", "ftp://a/b"], "'ftp://a/b' is not a URL; write https://"),
        (["--weights_url", "https://a/b c"], "is not a URL"),
        (["--colour", "red"], "unrecognized arguments: --colour red"),
    ],
)
def test_flags(words: list[str], message: str, root: Path, tmp_path: Path) -> None:
    assert message in refused(root, str(model(tmp_path)), *words)


def test_data_that_do_not_fit(root: Path, tmp_path: Path) -> None:
    file = model(tmp_path)
    np.savez(tmp_path / "wide.npz", x=np.zeros((4, 5), np.float32), y=np.zeros((4, 2), np.float32))
    assert "takes samples of shape 3" in refused(root, str(file), "--data", str(tmp_path / "wide.npz"))
    np.savez(tmp_path / "bare.npz", other=np.zeros((4, 3), np.float32))
    assert "does not fit task arrays" in refused(root, str(file), "--data", str(tmp_path / "bare.npz"))
    (tmp_path / "empty").mkdir()
    words = [str(file), "--data", str(tmp_path / "empty"), "--task", "classification"]
    assert "empty" in refused(root, *words)


def test_licence_of_the_metadata(root: Path, tmp_path: Path) -> None:
    message = refused(root, str(model(tmp_path, license="Research use only")))
    assert "the file's metadata" in message
    assert "fetch:NAME/PATH" in message


def test_state_of_another_model(root: Path, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first, second = model(tmp_path / "a"), model(tmp_path / "b")
    refused(root, str(first), "--licence", "MIT", "--out", "work", "--dim", "other=4")
    (Path("work") / "adapt.json").write_text(
        '{"schema_version": 1, "model": "'
        + str(first)
        + '", "name": "given", "written": {"README.md": ""}, "case": "", "stages": {}}',
        encoding="utf-8",
    )
    assert "is of another model" in refused(root, str(second), "--out", "work")


@pytest.mark.parametrize(
    ("licence", "is_free"),
    [
        ("Apache-2.0", True),
        ("MIT", True),
        ("BSD-3-Clause", True),
        ("CC-BY-4.0", True),
        ("AGPL-3.0 License (https://ultralytics.com/license)", True),
        ("CC-BY-NC-4.0", False),
        ("cc_by_nc_sa", False),
        ("CC BY-ND 3.0", False),
        ("Non-commercial", False),
        ("for research only", False),
        ("Proprietary", False),
        ("All rights reserved", False),
        ("UNLICENSED", False),
        ("none stated", False),
        ("llama 3 community", False),
        ("", True),
    ],
)
def test_licences(licence: str, is_free: bool) -> None:
    assert (forbids(licence) == "") is is_free
