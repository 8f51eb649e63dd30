"""Networks exported for a test, and their outputs compared with PyTorch's on all targets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from engine import EngineSpec, open_engine
from tecoinfer_modelzoo import evaluate
from utils.export.agree import TOLERANCES, relative_error
from utils.export.networks.vision.architecture import Architecture, Asked, Network
from utils.export.scripts.image_network import example, settings
from utils.export.torch_engine import pytorch_target
from utils.export.torch_export import export_onnx
from utils.tasks.base import AnyTask

BATCH = 3
CLOSE = 1e-3
"""Maximum relative error of float32 outputs, and of metrics."""


def exported(found: Network, folder: Path, forms: Sequence[str] = ("dyn",)) -> Path:
    """Export a network as its script does, and return the dynamic file; transformers' code has branches on shapes that
    only ``dynamo`` follows without a warning."""
    exporter = "dynamo" if found.of.source.startswith("transformers") else "torchscript"
    examples = [example(found, 1, place) for place in range(len(found.of.inputs))]
    export_onnx(found.module, examples, folder / found.name, forms=forms, exporter=exporter, **settings(found))
    return folder / f"{found.name}_dyn.onnx"


def check_outputs(found: Network, ckpt: Path, batch: int = BATCH) -> None:
    """Compare the outputs for a batch that was not traced with PyTorch's: on the baseline, and on the card."""
    inputs = [example(found, batch, 10 + place) for place in range(len(found.of.inputs))]
    with torch.no_grad():
        answer = found.module(*inputs)
    wanted = [one.numpy() for one in ([answer] if isinstance(answer, torch.Tensor) else answer)]
    assert all(np.isfinite(one).all() and one.std() > 0 for one in wanted)
    dims = {"height": (found.asked.size[0],), "width": (found.asked.size[1],)} if found.of.free else {}
    for target, dtype in (("onnx", "float32"), ("sdaa", "float32"), ("sdaa", "float16")):
        spec = EngineSpec(ckpt=ckpt, batch_size=batch, dtype=dtype, dims=dims)
        with open_engine(target, spec) as engine:
            assert [one.name for one in engine.inputs] == list(found.of.inputs)
            assert [one.name for one in engine.outputs] == list(found.of.outputs)
            outputs: Any = engine([one.numpy().astype(engine.input_dtype) for one in inputs])
        got = outputs if isinstance(outputs, list) else [outputs]
        limit = CLOSE if dtype == "float32" else TOLERANCES["float16"]
        assert relative_error([one.astype(np.float32) for one in got], wanted) < limit, (target, dtype)


def check_metric(task: AnyTask, found: Network, ckpt: Path, data: Any, **options: Any) -> float:
    """Evaluate a file on a data set by its task with PyTorch, the baseline and the card; return the metric."""
    reports = []
    for target in (pytorch_target(lambda: found.module), "onnx", "sdaa"):
        report = evaluate(task, ckpt=ckpt, data=data, target=target, dtype="float32", batch_size=4, **options)
        assert not report.failures
        reports.append(report)
    assert len({report.samples for report in reports}) == 1
    first, *others = (report.metric for report in reports)
    np.testing.assert_allclose(others, first, rtol=CLOSE, atol=CLOSE)
    return first


def parameters(architecture: Architecture, asked: Asked) -> int:
    """Return the number of trainable parameters, without memory for them."""
    with torch.device("meta"):
        made = architecture.build(asked)
    return sum(one.numel() for one in made.parameters() if one.requires_grad)
