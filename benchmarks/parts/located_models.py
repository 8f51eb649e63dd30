"""The ten models of located_faults.py, all with their nodes as exported, and their inputs.

MiniLM, PP-OCRv4's detector and the digits network are trained. The others have random weights, which is sufficient to
find faults, and drawn so that float16 alone causes no overflow: batch norms have the statistics of noise, and
projections keep the magnitude of their input.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from parts import real_models
from parts.bench import DIGITS

MEAN, STD = (np.float32(values).reshape(3, 1, 1) for values in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
"""ImageNet's."""


@dataclass(frozen=True)
class Located:
    """A correct model.

    Attributes:
        path: the ONNX file. data: its inputs, as ``.npz``.
        images: float32 samples of shape (N, 3, H, W) in 0 to 1 and what is subtracted and divided by, if it takes
            any.
    """

    name: str
    path: Path
    data: Path
    images: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None


def _photographs(size: tuple[int, int], count: int = 3) -> np.ndarray:
    """Return parts of scikit-image's photographs: float32 of shape (count, 3, *size), in 0 to 1."""
    from skimage import data
    from skimage.transform import resize

    photographs = [data.astronaut(), data.coffee(), data.chelsea(), data.rocket()][:count]
    found = [resize(one[:, :, :3], size, anti_aliasing=True).transpose(2, 0, 1) for one in photographs]
    return np.stack(found).astype(np.float32)


def _of_images(
    name: str,
    path: Path,
    folder: Path,
    images: np.ndarray,
    scale: tuple[np.ndarray, np.ndarray] = (MEAN, STD),
) -> Located:
    """Return a model of images, with its data in the format of its input."""
    (only,) = onnx.load(path, load_external_data=False).graph.input
    data = folder / f"{name}.npz"
    np.savez(data, **{only.name: (images - scale[0]) / scale[1]})
    return Located(name, path, data, (images, *scale))


def _of_arrays(name: str, path: Path, folder: Path, arrays: Mapping[str, np.ndarray]) -> Located:
    data = folder / f"{name}.npz"
    np.savez(data, **dict(arrays))
    return Located(name, path, data)


def _exported(
    model: Any, examples: Mapping[str, np.ndarray], stem: Path, dynamic: Mapping[int, str] | None = None
) -> Path:
    """Export a torch module; the batch is dynamic, or the axes of every input that are named."""
    import torch

    from utils.export.torch_export import export_onnx

    given = [torch.from_numpy(array) for array in examples.values()]
    axes = dict.fromkeys(examples, dynamic) if dynamic else None
    export_onnx(model.eval(), given, stem, input_names=list(examples), dynamic=axes, float16=False)
    return stem.with_name(f"{stem.name}_dyn.onnx")


# -------------------------------------------------------------------------------------------------------------- trained


def minilm(folder: Path) -> Located:
    """Return all-MiniLM-L6-v2 on sentences of several lengths, so that its mask has an effect."""
    ids, mask = real_models.tokens(real_models.sentences(6))
    path = real_models.minilm(folder / "minilm")
    return _of_arrays("minilm", path, folder, {"input_ids": ids, "attention_mask": mask})


def detector(folder: Path) -> Located:
    """Return PP-OCRv4's text detector with its constants as initializers, on a page and a photograph."""
    model = onnx.load(real_models.detector())
    graph = model.graph
    constants = [node for node in graph.node if node.op_type == "Constant"]
    for node in constants:
        graph.initializer.append(node.attribute[0].t)
        graph.initializer[-1].name = node.output[0]
        graph.node.remove(node)
    path = folder / "detector.onnx"
    onnx.save(model, str(path))
    page = real_models.detector_input() / 2 + 0.5
    half = np.full((3, 1, 1), 0.5, np.float32)
    both = np.concatenate([page, _photographs(page.shape[2:], 1)])
    return _of_images("detector", path, folder, both, (half, half))


def digits(folder: Path) -> Located:
    """Return the digits network of the zoo on four digits, with different shading of each channel."""
    from sklearn.datasets import load_digits

    small = load_digits().images[:4].astype(np.float32) / 16
    large = small.repeat(4, axis=1).repeat(4, axis=2)[:, None].repeat(3, axis=1)
    shaded = large * np.float32([1, 0.8, 0.6]).reshape(1, 3, 1, 1)
    return _of_images("digits", DIGITS / "digits_dyn.onnx", folder, shaded)


# --------------------------------------------------------------------------------------------------------------- random


def _torchvision(arch: str) -> Callable[[Path], Located]:
    def made(folder: Path) -> Located:
        from utils.export.networks.torchvision_models import RANDOM, build

        model, _, _ = build(arch, RANDOM)
        images = _photographs((96, 96))
        path = _exported(model, {"input": (images - MEAN) / STD}, folder / arch)
        return _of_images(arch, path, folder, images)

    return made


def vision_transformer(folder: Path) -> Located:
    """Return torchvision's vision transformer, small, with a head and a class token that are not 0."""
    import torch

    from utils.export.networks.torchvision_models import import_torchvision

    torch.manual_seed(0)
    make = import_torchvision().models.vision_transformer.VisionTransformer
    model = make(image_size=64, patch_size=8, num_layers=4, num_heads=4, hidden_dim=64, mlp_dim=128, num_classes=20)
    for parameter in (model.heads.head.weight, model.class_token):
        torch.nn.init.normal_(parameter, std=0.1)
    images = _photographs((64, 64))
    path = _exported(model, {"input": (images - MEAN) / STD}, folder / "vision_transformer")
    return _of_images("vision transformer", path, folder, images)


def decoder(folder: Path) -> Located:
    """Return transformers' GPT-2, small: its mask is causal, and hides the padding too."""
    import torch

    from utils.export.networks.torchvision_models import import_torchvision

    import_torchvision()  # transformers needs it whole
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    sizes = {"n_layer": 4, "n_embd": 64, "n_head": 4, "n_positions": 64, "vocab_size": 200}
    ends = {"bos_token_id": 0, "eos_token_id": 0}
    config = GPT2Config(**sizes, **ends, initializer_range=0.1, use_cache=False, attn_implementation="eager")

    class Decoder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = GPT2LMHeadModel(config)

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
            return self.model(input_ids=input_ids, attention_mask=attention_mask).logits

    rng = np.random.default_rng(0)
    mask = (np.arange(20) < np.array([[20], [13], [7]])).astype(np.int64)
    arrays = {"input_ids": rng.integers(0, 200, (3, 20)), "attention_mask": mask}
    path = _exported(Decoder(), arrays, folder / "decoder", {0: "batch", 1: "seq"})
    return _of_arrays("decoder", path, folder, arrays)


def lstm(folder: Path) -> Located:
    """Return a layer norm and two layers of LSTM, both ways round, on sequences of 24 steps."""
    import torch

    torch.manual_seed(0)

    class Recurrent(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = (
                torch.nn.LSTM(size, 48, bidirectional=True, batch_first=True) for size in (32, 96)
            )
            self.third = torch.nn.LSTM(96, 48, bidirectional=True, batch_first=True)
            self.norm, self.head = torch.nn.LayerNorm(96), torch.nn.Linear(96, 12)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x, _ = self.first(x)
            x, _ = self.second(self.norm(x))
            x, _ = self.third(x)
            return self.head(x)

    arrays = {"x": np.random.default_rng(0).normal(size=(3, 24, 32)).astype(np.float32)}
    return _of_arrays("lstm", _exported(Recurrent(), arrays, folder / "lstm"), folder, arrays)


def unet(folder: Path) -> Located:
    """Return a U-Net of three levels with group norms, for segmentation into six classes."""
    import torch
    from torch import nn

    def block(into: int, out: int) -> nn.Sequential:
        twice = [(into, out), (out, out)]
        return nn.Sequential(*(m for a, b in twice for m in (nn.Conv2d(a, b, 3, 1, 1), nn.GroupNorm(4, b), nn.ReLU())))

    class UNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.down = nn.ModuleList([block(3, 16), block(16, 32), block(32, 64)])
            self.up = nn.ModuleList([block(96, 32), block(48, 16)])
            self.head = nn.Conv2d(16, 6, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            first = self.down[0](x)
            second = self.down[1](nn.functional.max_pool2d(first, 2))
            x = self.down[2](nn.functional.max_pool2d(second, 2))
            for before, layer in zip((second, first), self.up, strict=True):
                x = layer(torch.cat([nn.functional.interpolate(x, scale_factor=2.0, mode="nearest"), before], 1))
            return self.head(x)

    torch.manual_seed(0)
    images = _photographs((64, 64))
    path = _exported(UNet(), {"input": (images - MEAN) / STD}, folder / "unet")
    return _of_images("u-net", path, folder, images)


MODELS: dict[str, Callable[[Path], Located]] = {
    "minilm": minilm,
    "detector": detector,
    "digits": digits,
    "resnet18": _torchvision("resnet18"),
    "mobilenet_v3": _torchvision("mobilenet_v3_small"),
    "shufflenet": _torchvision("shufflenet_v2_x0_5"),
    "vision transformer": vision_transformer,
    "decoder": decoder,
    "lstm": lstm,
    "u-net": unet,
}

QUICK: Sequence[str] = ("digits", "decoder", "lstm")
"""Of a quick run: seconds to export, a mask among them."""
