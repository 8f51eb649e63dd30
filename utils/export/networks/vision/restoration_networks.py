"""Networks for image restoration: ESPCN, EDSR, and Swin2SR of transformers, a successor of SwinIR."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from math import log2
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from engine import ConfigError
from utils.export.networks.transformers_detectors import pretrained, transformers
from utils.export.networks.vision.architecture import Architecture, Asked
from utils.export.networks.vision.picked import Picked

LEVELS = 255.0
RGB_MEAN = (0.4488, 0.4371, 0.4040)
"""Mean of DIV2K's training images in 0..1, which EDSR subtracts and adds."""


class Espcn(nn.Module):  # type: ignore[misc]  # torch is not typed here
    """ESPCN (Shi et al., 2016) as PyTorch's example ``super_resolution`` builds it: N x 1 x H x W luma in 0..1 to
    N x 1 x rH x rW; the names of its weights are those of that example's checkpoint.
    """

    def __init__(self, scale: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 64, 5, padding=2)
        self.conv2 = nn.Conv2d(64, 64, 3, padding=1)
        self.conv3 = nn.Conv2d(64, 32, 3, padding=1)
        self.conv4 = nn.Conv2d(32, scale**2, 3, padding=1)
        self.pixel_shuffle = nn.PixelShuffle(scale)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the enlarged luma."""
        for layer in (self.conv1, self.conv2, self.conv3):
            x = functional.relu(layer(x))
        found: torch.Tensor = self.pixel_shuffle(self.conv4(x))
        return found


class ResidualBlock(nn.Module):  # type: ignore[misc]
    """Two convolutions, whose scaled result is added to N x C x H x W features."""

    def __init__(self, width: int, factor: float) -> None:
        super().__init__()
        layers = [nn.Conv2d(width, width, 3, padding=1) for _ in range(2)]
        self.body = nn.Sequential(layers[0], nn.ReLU(inplace=True), layers[1])
        self.factor = factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return features of the same shape."""
        return x + self.body(x) * self.factor


class Edsr(nn.Module):  # type: ignore[misc]
    """EDSR (Lim et al., 2017): N x 3 x H x W, RGB in 0..255, to N x 3 x rH x rW; the names of its weights are those of
    the authors' checkpoints (``edsr_baseline_x2-1bc95232.pt``).

    Args:
        scale: r: 2, 3 or 4. blocks, width: 16 and 64 of the baseline, 32 and 256 of the full network.
        factor: of residuals: 1, and 0.1 of the full network.
    """

    def __init__(self, scale: int, blocks: int, width: int, factor: float) -> None:
        super().__init__()
        self.sub_mean, self.add_mean = _shift(-1), _shift(1)
        self.head = nn.Sequential(nn.Conv2d(3, width, 3, padding=1))
        inner = [ResidualBlock(width, factor) for _ in range(blocks)]
        self.body = nn.Sequential(*inner, nn.Conv2d(width, width, 3, padding=1))
        steps = [3] if scale == 3 else [2] * int(log2(scale))
        enlarging = [
            layer
            for step in steps
            for layer in (nn.Conv2d(width, step**2 * width, 3, padding=1), nn.PixelShuffle(step))
        ]
        self.tail = nn.Sequential(nn.Sequential(*enlarging), nn.Conv2d(width, 3, 3, padding=1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the enlarged image."""
        first = self.head(self.sub_mean(x))
        found: torch.Tensor = self.add_mean(self.tail(first + self.body(first)))
        return found


def _shift(sign: int) -> nn.Conv2d:
    """Return a fixed layer that adds or subtracts the mean."""
    layer = nn.Conv2d(3, 3, 1)
    with torch.no_grad():
        layer.weight.copy_(torch.eye(3).reshape(3, 3, 1, 1))
        layer.bias.copy_(sign * LEVELS * torch.tensor(RGB_MEAN))
    return layer.requires_grad_(False)


def _notes(scale: int, values: str, order: str, overlap: int = 16, multiple: int = 1) -> Mapping[str, Any]:
    """Return the metadata; ``overlap``: of tiles, in pixels of the input."""
    return {
        "restoration": {
            "scale": scale, "pixel_values": values, "channel_order": order, "multiple": multiple,
            "tile_overlap": overlap, "y_channel": True, "crop_border": scale,
        }
    }  # fmt: skip


def _espcn(scale: int) -> Architecture:
    return Architecture(
        build=lambda asked: Espcn(scale),
        source="ESPCN of pytorch/examples super_resolution",
        size=(64, 64), multiple=1, scale=None, highest=1.0, channels=1, free=True,
        notes=lambda asked: _notes(scale, "0..1", "Y", overlap=10),  # the receptive field: tiles equal the whole image
    )  # fmt: skip


def _edsr(scale: int, blocks: int, width: int, factor: float) -> Architecture:
    return Architecture(
        build=lambda asked: Edsr(scale, blocks, width, factor),
        source="EDSR of sanghyun-son/EDSR-PyTorch",
        size=(48, 48), multiple=1, scale=None, highest=LEVELS, free=True,
        notes=lambda asked: _notes(scale, "0..255", "RGB"),
    )  # fmt: skip


WINDOW = 8
"""Side of the windows of Swin2SR's published configurations; sides of inputs are multiples of it."""

SWIN: dict[str, Any] = {"upscale": 2, "window_size": WINDOW, "upsampler": "pixelshuffle"}
LIGHT: dict[str, Any] = {"depths": [6] * 4, "num_heads": [6] * 4, "embed_dim": 60, "upsampler": "pixelshuffledirect"}
TINY: dict[str, Any] = {"depths": [2, 2], "num_heads": [2, 2], "embed_dim": 16, "upsampler": "pixelshuffledirect"}


def _swin(name: str, **config: Any) -> Architecture:
    values = SWIN | config
    return Architecture(
        build=partial(_swin_network, values),
        source=f"transformers swin2sr ({name})",
        size=(64, 64), multiple=WINDOW, scale=None, highest=1.0,
        exported=lambda made: Picked(made, "reconstruction"),
        notes=lambda asked: _notes(values["upscale"], "0..1", "RGB", multiple=WINDOW),
    )  # fmt: skip


def _swin_network(values: Mapping[str, Any], asked: Asked) -> nn.Module:
    found = transformers()
    made: nn.Module = found.Swin2SRForImageSuperResolution(found.Swin2SRConfig(**values))
    return made


ARCHS: dict[str, Architecture] = {
    **{f"espcn_x{scale}": _espcn(scale) for scale in (2, 3, 4)},
    **{f"edsr_baseline_x{scale}": _edsr(scale, 16, 64, 1.0) for scale in (2, 3, 4)},
    **{f"edsr_x{scale}": _edsr(scale, 32, 256, 0.1) for scale in (2, 3, 4)},
    "swin2sr_classical_x2": _swin("swin2SR-classical-sr-x2-64"),
    "swin2sr_classical_x4": _swin("swin2SR-classical-sr-x4-64", upscale=4),
    "swin2sr_lightweight_x2": _swin("swin2SR-lightweight-x2-64", **LIGHT),
    "swin2sr_realworld_x4": _swin("swin2SR-realworld-sr-x4-64-bsrgan-psnr", upscale=4, upsampler="nearest+conv"),
    "swin2sr_tiny_x2": _swin("a small one of no publication", **TINY),
}
"""Networks by name; the channels, depths and heads of Swin2SR are those of its publication but for the tiny one."""


def from_folder(folder: str) -> Architecture:
    """Return Swin2SR with the configuration and the weights in a folder of transformers' ``save_pretrained``.
    Raises ConfigError or ModelError if it has another model or is damaged."""
    made = pretrained(folder, "AutoModelForImageToImage")
    config = made.config
    if config.model_type != "swin2sr" or config.num_channels != 3:
        raise ConfigError(
            f"--weights {folder}: a {config.model_type} of {config.num_channels} channels; use Swin2SR of RGB images"
        )
    window = int(config.window_size)
    return Architecture(
        build=lambda asked: made,
        source=f"transformers swin2sr ({Path(folder).resolve().name})",
        size=(8 * window, 8 * window), multiple=window, scale=None, highest=1.0,
        exported=lambda network: Picked(network, "reconstruction"),
        notes=lambda asked: _notes(int(config.upscale), "0..1", "RGB", multiple=window),
    )  # fmt: skip
