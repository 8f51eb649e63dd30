"""MiDaS v2.1 (Ranftl et al., 2020): inverse depth up to scale and shift, from a ResNeXt or an EfficientNet-Lite.

The names of the weights are those of the authors' checkpoints, ``midas_v21_384.pt`` and ``midas_v21_small_256.pt``.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional

from utils.export.networks.timm_models import import_timm
from utils.export.networks.torchvision_models import import_torchvision


def _conv(inputs: int, outputs: int, size: int = 3, bias: bool = True) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, size, padding=size // 2, bias=bias)


class ResidualUnit(nn.Module):  # type: ignore[misc]  # torch is not typed here
    """ReLU and convolution, twice, added to the input.

    In the large network the first ReLU works in place and so also changes the input that is added; its published
    weights were trained like that.
    """

    def __init__(self, width: int, clips_input: bool) -> None:
        super().__init__()
        self.conv1, self.conv2 = _conv(width, width), _conv(width, width)
        self.clips_input = clips_input

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return features of the same shape."""
        clipped = functional.relu(x)
        found: torch.Tensor = self.conv2(functional.relu(self.conv1(clipped)))
        return found + (clipped if self.clips_input else x)


class Fusion(nn.Module):  # type: ignore[misc]
    """Joins coarser features with those of a level, and doubles the sides.

    Args:
        outputs: channels after the last convolution; ``None``: there is none, as in the large network.
    """

    def __init__(self, width: int, outputs: int | None) -> None:
        super().__init__()
        if outputs is not None:
            self.out_conv = _conv(width, outputs, 1)
        self.resConfUnit1 = ResidualUnit(width, clips_input=outputs is None)
        self.resConfUnit2 = ResidualUnit(width, clips_input=outputs is None)
        self.has_conv = outputs is not None

    def forward(self, x: torch.Tensor, level: torch.Tensor | None = None) -> torch.Tensor:
        """Return N x outputs x 2H x 2W."""
        if level is not None:
            x = x + self.resConfUnit1(level)
        x = functional.interpolate(self.resConfUnit2(x), scale_factor=2.0, mode="bilinear", align_corners=True)
        return self.out_conv(x) if self.has_conv else x


class Doubled(nn.Module):  # type: ignore[misc]
    """Bilinear enlargement to twice the sides."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return N x C x 2H x 2W."""
        return functional.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=False)


class Midas(nn.Module):  # type: ignore[misc]
    """N x 3 x H x W to inverse depth, N x H x W, not negative; H and W are multiples of 32.

    Args:
        levels: four parts of a network, of strides 4, 8, 16 and 32. channels: of their outputs.
        widths: channels of the fusions by level. has_conv: whether fusions end with a convolution.
    """

    def __init__(
        self, levels: Sequence[nn.Module], channels: Sequence[int], widths: Sequence[int], has_conv: bool
    ) -> None:
        super().__init__()
        self.pretrained, self.scratch = nn.Module(), nn.Module()
        finer = [widths[0], *widths[:-1]]
        for place, level in enumerate(levels):
            self.pretrained.add_module(f"layer{place + 1}", level)
            self.scratch.add_module(f"layer{place + 1}_rn", _conv(channels[place], widths[place], bias=False))
            fusion = Fusion(widths[place], finer[place] if has_conv else None)
            self.scratch.add_module(f"refinenet{place + 1}", fusion)
        first = widths[0]
        self.scratch.add_module(
            "output_conv",
            nn.Sequential(_conv(first, first // 2), Doubled(), _conv(first // 2, 32), nn.ReLU(), _conv(32, 1, 1)),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the inverse depth."""
        features = []
        for place in range(1, 5):
            x = getattr(self.pretrained, f"layer{place}")(x)
            features.append(getattr(self.scratch, f"layer{place}_rn")(x))
        joined = self.scratch.refinenet4(features[3])
        for place in (3, 2, 1):
            joined = getattr(self.scratch, f"refinenet{place}")(joined, features[place - 1])
        return functional.relu(self.scratch.output_conv(joined)).squeeze(1)


def large() -> Midas:
    """Return MiDaS v2.1 with ResNeXt101 32x8d; raise TargetError if torchvision is not installed."""
    body = import_torchvision().models.get_model("resnext101_32x8d", weights=None)
    first = nn.Sequential(body.conv1, body.bn1, body.relu, body.maxpool, body.layer1)
    levels = (first, body.layer2, body.layer3, body.layer4)
    return Midas(levels, (256, 512, 1024, 2048), (256,) * 4, has_conv=False)


def small() -> Midas:
    """Return MiDaS v2.1 small with EfficientNet-Lite3; raise TargetError if timm is not installed."""
    body = import_timm().create_model("tf_efficientnet_lite3", pretrained=False)
    # timm's first norm includes the activation, which is a layer of its own in the published files
    first = nn.Sequential(body.conv_stem, body.bn1, nn.Identity(), *body.blocks[:2])
    levels = (first, body.blocks[2:3], body.blocks[3:5], body.blocks[5:])
    return Midas(levels, (32, 48, 136, 384), (64, 128, 256, 512), has_conv=True)
