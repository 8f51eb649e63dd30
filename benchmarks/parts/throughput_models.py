"""The models of ``throughput.py``: torchvision networks with seeded random weights, and one that computes nothing."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from parts import bench  # noqa: F401 -- puts the repository on the path
from parts.peers import NO_COMPUTE, STEP, Setup

NETWORKS = ("shufflenet_v2_x1_0", "mobilenet_v2", "resnet18", "resnet50")

LARGE = {"resnet50": 16}
"""Batch sizes other than the usual one."""

IMAGES, MANY = 384, 768
LIGHT = (NO_COMPUTE, "shufflenet_v2_x1_0", "mobilenet_v2")
"""Models for which a run over the usual number of images is too short for a constant rate."""

BATCH_SIZE, QUICK_BATCH_SIZE = 32, 8


def setup_of(model: str, work: Path, images: Path, batch_size: int | None, quick: bool) -> Setup | None:
    """Return the setup of a model, whose file is created if missing; ``None`` if torch is needed and missing."""
    size = batch_size or (QUICK_BATCH_SIZE if quick else LARGE.get(model, BATCH_SIZE))
    path = work / f"{model}_dyn.onnx"
    if not path.is_file():
        work.mkdir(parents=True, exist_ok=True)
        if model == NO_COMPUTE:
            _write_no_compute(path)
        elif not (importlib.util.find_spec("torch") and importlib.util.find_spec("torchvision")):
            return None
        else:
            _export(model, path)
    return Setup(model, path, images, size)


def _export(model: str, path: Path) -> None:
    import torch

    from utils.export.networks.torchvision_models import RANDOM, build
    from utils.export.torch_export import export_onnx

    network, labels, preprocess = build(model, RANDOM)
    example = torch.randn((1, 3, 224, 224), generator=torch.Generator().manual_seed(0))
    stem = str(path).removesuffix("_dyn.onnx")
    export_onnx(network, example, stem, labels=labels, preprocess=preprocess, float16=False)


def _write_no_compute(path: Path, size: int = 224) -> None:
    """Write a model that returns every :data:`STEP`-th pixel as its scores."""
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    def constant(name: str, *values: int) -> TensorProto:
        return numpy_helper.from_array(np.array(values, np.int64), name)

    constants = [constant("from", 0, 0), constant("to", size, size), constant("axes", 2, 3), constant("by", STEP, STEP)]
    nodes = [
        helper.make_node("Slice", ["input", "from", "to", "axes", "by"], ["sampled"]),
        helper.make_node("Flatten", ["sampled"], ["output"]),
    ]
    shapes = {"input": ["batch", 3, size, size], "output": ["batch", 3 * -((-size // STEP) ** 2)]}
    ends = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)] for name, shape in shapes.items()]
    graph = helper.make_graph(nodes, "no_compute", *ends, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    onnx.save_model(model, path)
