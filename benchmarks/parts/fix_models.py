"""The networks of fix_runs.py: a classifier, a transformer encoder and a detector head, all with random weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Shape = tuple[int, ...]


def resnet50(small: bool) -> tuple[Any, Shape]:
    """Return torchvision's ResNet50 (a small one: ResNet18), its batch norms with the statistics of noise."""
    from utils.export.networks.torchvision_models import RANDOM, build

    return build("resnet18" if small else "resnet50", RANDOM)[0], (3, 64, 64)


def encoder(small: bool) -> tuple[Any, Shape]:
    """Return ``torch.nn.TransformerEncoder`` of 6 layers (2), norm first, on 16 tokens of 64 numbers."""
    import torch

    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(64, 4, 256, batch_first=True, norm_first=True)
    return torch.nn.TransformerEncoder(layer, 2 if small else 6, enable_nested_tensor=False).eval(), (16, 64)


def detector(small: bool) -> tuple[Any, Shape]:
    """Return the head of torchvision's RetinaNet on three levels of 64 channels, made by strided convolutions.

    He's initial weights are used, since with the published small ones all scores are nearly equal.
    """
    import torch

    from utils.export.networks.torchvision_models import import_torchvision

    retinanet = import_torchvision().models.detection.retinanet

    class Detector(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            steps = [(3, 64), (64, 64), (64, 64), (64, 64)][: 2 if small else 4]
            self.levels = torch.nn.ModuleList(torch.nn.Conv2d(a, b, 3, 2, 1) for a, b in steps)
            self.head = retinanet.RetinaNetHead(64, 9, 20)
            for module in self.modules():
                if isinstance(module, torch.nn.Conv2d):
                    torch.nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
                    torch.nn.init.zeros_(module.bias)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            levels = []
            for level in self.levels:
                x = torch.relu(level(x))
                levels.append(x)
            found = self.head(levels[1:])
            return torch.sigmoid(found["cls_logits"]), found["bbox_regression"]

    torch.manual_seed(0)
    return Detector().eval(), (3, 64, 64)


MODELS: dict[str, Callable[[bool], tuple[Any, Shape]]] = {
    "resnet50": resnet50,
    "transformer encoder": encoder,
    "detector head": detector,
}


def export(name: str, folder: Path, samples: int, small: bool = False) -> tuple[Path, Path]:
    """Write a network as ONNX (dynamic batch) and its data set, normally distributed noise; return both."""
    import torch

    from utils.export.torch_export import export_onnx

    model, shape = MODELS[name](small)
    outputs = ("scores", "boxes") if name == "detector head" else ("output",)
    stem = folder / name.replace(" ", "_")
    export_onnx(model, torch.randn(2, *shape), stem, input_names=("x",), output_names=outputs, float16=False)
    data = stem.with_suffix(".npz")
    np.savez(data, x=np.random.default_rng(5).normal(size=(samples, *shape)).astype(np.float32))
    return stem.with_name(f"{stem.name}_dyn.onnx"), data
