"""Models that nobody prepared, with their data, for ``teco adapt``; weights are constructed or random."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from planted import Net
from yolo_models import DETECTOR, NAMES, SIDE, V8, save_detector

from toolkit.scaffold import create
from utils.arrays import npz_bytes

SCENES = 40
"""Images of the detector."""

FLOAT, DOUBLE = TensorProto.FLOAT, TensorProto.DOUBLE


def ultralytics(folder: Path) -> tuple[Path, Path]:
    """Write a detector of digits with the metadata of an Ultralytics export, and its scenes."""
    file = save_detector(folder / "yolo.onnx", V8)
    model = onnx.load(file)
    texts = {"names": str(dict(enumerate(NAMES))), "stride": "32", "task": "detect", "imgsz": f"[{SIDE}, {SIDE}]"}
    helper.set_model_props(model, {**texts, "license": "Apache-2.0", "author": "the zoo's tests"})
    onnx.save(model, file)
    (folder / "scenes").mkdir()
    known = json.loads((DETECTOR / "data" / "val.json").read_text(encoding="utf-8"))
    images = known["images"][:SCENES]
    ids = {image["id"] for image in images}
    own = [one for one in known["annotations"] if one["image_id"] in ids]
    (folder / "scenes" / "val.json").write_text(json.dumps({**known, "images": images, "annotations": own}))
    for image in images:
        (folder / "scenes" / image["file_name"]).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(DETECTOR / "data" / image["file_name"], folder / "scenes" / image["file_name"])
    return file, folder / "scenes"


def tagger(folder: Path) -> tuple[Path, Path]:
    """Write a folder of transformers without weights, and tagged sentences."""
    from utils.export.networks.small_tokenizers import small_tokenizer
    from utils.tasks.templates.sample_texts import NAMES as PEOPLE, PATTERNS, fill_journeys

    labels = ["O", "B-PER", "B-LOC"]
    config = {
        "architectures": ["BertForTokenClassification"],
        "model_type": "bert",
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 64,
        "max_position_embeddings": 64,
        "id2label": {str(number): label for number, label in enumerate(labels)},
    }
    words = [*PATTERNS, *(" ".join(names) for names in PEOPLE.values())]
    tokenizer = small_tokenizer("bert", words)
    config["vocab_size"] = 1 + max(tokenizer["model"]["vocab"].values())
    home = folder / "tagger"
    home.mkdir()
    (home / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (home / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    fill_journeys(folder)
    return home, folder / "data" / "val.conll"


def recogniser(folder: Path) -> tuple[Path, Path, list[str]]:
    """Write a CTC network of tones without metadata, recordings, and the flags that say what the metadata would."""
    project = folder / "made"
    project.mkdir()
    made = create("speech", "tones", task="speech_recognition", root=project)
    home = project / made.folder
    words = [sys.executable, "export_onnx.py"]
    subprocess.run(words, cwd=home, check=True, capture_output=True)
    model = onnx.load(home / "tones_dyn.onnx")
    notes = {one.key: one.value for one in model.metadata_props}
    del model.metadata_props[:]
    onnx.save(model, folder / "ctc.onnx")
    flags = []
    for key in ("features", "vocabulary", "speech_recognition"):
        (folder / f"{key}.json").write_text(notes[key], encoding="utf-8")
        flags += ["--note", f"{key}=@{folder / f'{key}.json'}"]
    shutil.copytree(home / "data", folder / "recordings")
    return folder / "ctc.onnx", folder / "recordings" / "recordings.jsonl", flags


def overflowing(folder: Path) -> tuple[Path, Path]:
    """Write a classifier that divides its features by their norm, whose square exceeds float16: all scores become 0."""
    rng = np.random.default_rng(0)
    net = Net(1)
    x = net.add("Relu", net.add("MatMul", "x", net.const(rng.normal(0, 1, (24, 16)))))
    large = net.add("Mul", x, net.const(200.0))
    squares = net.add("ReduceSum", net.add("Mul", large, large), net.const([1], np.int64), keepdims=1)
    unit = net.add("Div", large, net.add("Sqrt", squares))
    scores = net.add("MatMul", unit, net.const(rng.normal(0, 1, (16, 5))))
    net.nodes.append(helper.make_node("Identity", [scores], ["y"]))
    ends = [helper.make_tensor_value_info(name, FLOAT, ["N", size]) for name, size in (("x", 24), ("y", 5))]
    graph = helper.make_graph(net.nodes, "g", ends[:1], ends[1:], net.weights)
    file = folder / "norm.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), file)
    data = rng.normal(0, 1, (200, 24)).astype(np.float32)
    from onnxruntime import InferenceSession

    (found,) = InferenceSession(str(file)).run(None, {"x": data})
    labels = found.argmax(axis=1)
    labels[::10] = (labels[::10] + 1) % 5
    np.savez(folder / "norm.npz", x=data, y=labels)
    return file, folder / "norm.npz"


def lacking(folder: Path) -> Path:
    """Write a network with a convolution in float64, for which ONNX Runtime, and so the card, has no kernel."""
    rng = np.random.default_rng(0)
    weight = numpy_helper.from_array(rng.normal(0, 0.2, (4, 3, 3, 3)), "w")
    nodes = [
        helper.make_node("Cast", ["x"], ["wide"], to=DOUBLE),
        helper.make_node("Conv", ["wide", "w"], ["found"], "conv64", kernel_shape=[3, 3], pads=[1] * 4),
        helper.make_node("Cast", ["found"], ["narrow"], to=FLOAT),
        helper.make_node("Relu", ["narrow"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(name, FLOAT, ["N", size, 12, 12]) for name, size in (("x", 3), ("y", 4))]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], [weight])
    file = folder / "wide.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), file)
    return file


def fixed_batch(folder: Path) -> Path:
    """Write a network whose batch is 1, also in the target of a Reshape."""
    rng = np.random.default_rng(0)
    weights: dict[str, Any] = {"w": rng.normal(0, 0.3, (48, 6)).astype(np.float32), "flat": np.array([1, 48], np.int64)}
    nodes = [
        helper.make_node("Reshape", ["x", "flat"], ["row"]),
        helper.make_node("MatMul", ["row", "w"], ["product"]),
        helper.make_node("Tanh", ["product"], ["y"]),
    ]
    ends = [
        helper.make_tensor_value_info("x", FLOAT, [1, 3, 4, 4]),
        helper.make_tensor_value_info("y", FLOAT, [1, 6]),
    ]
    graph = helper.make_graph(
        nodes, "g", ends[:1], ends[1:], [numpy_helper.from_array(v, k) for k, v in weights.items()]
    )
    file = folder / "one.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), file)
    return file


def spaced(folder: Path) -> tuple[Path, Path, Path]:
    """Write a float16 network with external data and two outputs, whose names have spaces and slashes, its data, and
    its outputs in float32."""
    rng = np.random.default_rng(0)
    weights = {"w": rng.normal(0, 0.3, (6, 8)).astype(np.float16), "v": rng.normal(0, 0.3, (8, 3)).astype(np.float16)}
    nodes = [
        helper.make_node("MatMul", ["the input", "w"], ["a/hidden:0"], "a"),
        helper.make_node("Tanh", ["a/hidden:0"], ["tanh of it"], "b"),
        helper.make_node("MatMul", ["tanh of it", "v"], ["the scores"], "c"),
    ]
    half = TensorProto.FLOAT16
    ends = [
        helper.make_tensor_value_info(name, half, ["batch size", "some length", size])
        for name, size in (("the input", 6), ("tanh of it", 8), ("the scores", 3))
    ]
    graph = helper.make_graph(
        nodes, "g", ends[:1], ends[1:], [numpy_helper.from_array(v, k) for k, v in weights.items()]
    )
    file = folder / "spaced net.onnx"
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.save_model(model, file, save_as_external_data=True, location="weights of it.bin", size_threshold=0)
    x = rng.normal(0, 1, (24, 5, 6)).astype(np.float32)
    hidden = np.tanh(x @ weights["w"].astype(np.float32))
    outputs = {"tanh of it": hidden, "the scores": hidden @ weights["v"].astype(np.float32)}
    noisy = {name: (one + rng.normal(0, 0.1, one.shape)).astype(np.float32) for name, one in outputs.items()}
    (folder / "the data.npz").write_bytes(npz_bytes({"the input": x, **noisy}))
    (folder / "golden.npz").write_bytes(npz_bytes(outputs))
    return file, folder / "the data.npz", folder / "golden.npz"


MODULE = '''"""A small network."""

import torch
from torch import nn


def build():
    """Return two convolutions."""
    return nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 2, 3, padding=1))
'''


def module(folder: Path) -> Path:
    """Write a file with a function that returns a PyTorch module."""
    file = folder / "net.py"
    file.write_text(MODULE, encoding="utf-8")
    return file
