"""Random weights with which a float16 file can be compared: activations neither overflow nor vanish.

With initial weights, activations grow or shrink from block to block, and deep networks amplify rounding errors a
hundredfold, unlike with trained weights. So after seeding

- the last batch norm of every residual block is scaled down; without residual blocks, batch norms get a bias of two
  standard deviations, so that rectifiers rarely clip (70 clipping ones in a row amplify differences by 10^5);
- weights that are initially zero (the head of a vision transformer) get small noise, and layer scales near zero
  (ConvNeXt's 1e-6) the scale of a residual block, so that all of the network affects the outputs;
- batch norms take the statistics of a batch of noise; in a network without norms each layer is divided by the standard
  deviation of its output for that noise (Mishkin and Matas, "All you need is a good init", 2016).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

RANDOM = "random"
"""Value of ``weights`` for seeded random weights, for functional and speed checks only."""

RESIDUAL_SCALE = 0.25
"""Scale of a residual block's last batch norm, and of its layer scale, under random weights."""

BIAS = 2.0
"""Bias of batch norms, in their own standard deviations, where there are no residual blocks."""

SIZE = 224
"""Height and width of the noise for statistics, in pixels, if the network takes any."""

IMAGES = 2
"""Images of noise of that size, or more smaller ones with as many pixels: small maps need enough values per channel."""

_RESIDUAL = re.compile(
    r"_?(BasicBlock|Bottleneck|Bottle2neck|InvertedResidual|EdgeResidual|UniversalInvertedResidual|MBConv|FusedMBConv"
    r"|ResBottleneckBlock|DepthwiseSeparableConv|ResNestBottleneck|SequentialAttentionBlock|DarkBlock|GhostBottleneck"
    r"|CSPNeXtBlock)"
)
"""torchvision's, timm's and our own classes of residual blocks whose branch ends in a batch norm."""

_SHORTCUTS = re.compile(r"(downsample|shortcut|proj)\b")
"""Modules on the shortcut of a block."""

_ALMOST_NOTHING = 1e-3
_SMALL = 0.02
_LAYERS = (nn.Conv1d, nn.Conv2d, nn.Linear)
_NORMS = (nn.modules.batchnorm._BatchNorm, nn.LayerNorm, nn.GroupNorm)


def seeded(
    make: Callable[[], nn.Module],
    size: tuple[int, int] | None = None,
    *,
    inputs: int = 1,
    channels: int = 3,
    example: torch.Tensor | None = None,
) -> nn.Module:
    """Return a network with seeded random weights in eval mode; the caller's random state is not changed.

    Args:
        make: returns the network.
        size: height and width of its images; ``None``: any.
        inputs, channels: the number of its image inputs, and of the channels of each.
        example: input for the statistics of another network than one of images.
    """

    def noise() -> list[torch.Tensor]:
        return [_noise(size, channels) for _ in range(inputs)] if example is None else [example]

    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        model = make()
        norms = [module for module in model.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
        _fill_constants(model)
        last = list(_last_norms(model))
        for norm in last:
            norm.weight.fill_(RESIDUAL_SCALE)
        for norm in [norm for norm in norms if norm.affine and not last]:
            norm.bias.fill_(BIAS)
        model.eval()
        if norms:
            _take_statistics(model, norms, noise())
        elif not any(isinstance(module, _NORMS) for module in model.modules()):
            _divide_layers(model, model, noise())
    return model.eval()


def divide_layers(model: nn.Module, part: nn.Module, size: tuple[int, int]) -> None:
    """Divide the layers of a module without norms by the standard deviations of their outputs for noise; otherwise each
    layer of a detection or depth head shrinks its values tenfold, until they vanish in float16.
    """
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        _divide_layers(model, part, [_noise(size)])


def lift(model: nn.Module, layer: Any, size: tuple[int, int]) -> None:
    """Change the bias of a layer so that its outputs for noise have a mean of three of their standard deviations; where
    a ReLU follows, random weights otherwise may give 0 everywhere.
    """
    seen: list[torch.Tensor] = []
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        hook = layer.register_forward_hook(lambda _module, _inputs, output: seen.append(output))
        model(_noise(size))
        hook.remove()
        layer.bias.add_(3 * seen[0].std() - seen[0].mean())


def _noise(size: tuple[int, int] | None, channels: int = 3) -> torch.Tensor:
    height, width = size or (SIZE, SIZE)
    return torch.randn(max(IMAGES, -(-IMAGES * SIZE * SIZE // (height * width))), channels, height, width)


def _fill_constants(model: nn.Module) -> None:
    """Fill zero weights with noise, and layer scales near zero with :data:`RESIDUAL_SCALE`."""
    for parameter in model.parameters():
        first = parameter.flatten()[:1]
        if not parameter.is_floating_point() or not bool((parameter == first).all()):
            continue
        if parameter.ndim > 1 and not first.any():
            parameter.normal_(std=_SMALL)
        elif first.any() and abs(float(first)) <= _ALMOST_NOTHING:
            parameter.fill_(RESIDUAL_SCALE)


def _last_norms(model: nn.Module) -> Iterator[Any]:
    """Yield the last batch norm of every residual block, except on shortcuts."""
    for block in model.modules():
        if not _RESIDUAL.fullmatch(type(block).__name__):
            continue
        named = [
            module
            for name, module in block.named_modules()
            if isinstance(module, nn.BatchNorm2d) and module.affine and not _SHORTCUTS.search(name)
        ]
        if named and named[-1].weight is not None:
            yield named[-1]


def _take_statistics(model: nn.Module, norms: list[Any], noise: list[torch.Tensor]) -> None:
    """Run noise through the network with only the batch norms in training mode."""
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.momentum = 1.0  # take the statistics of this one batch
        norm.train()
    model(*noise)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
        norm.eval()


def _divide_layers(model: nn.Module, part: nn.Module, noise: list[torch.Tensor]) -> None:
    """Divide each trainable layer of a module by the standard deviation of its output for noise, in execution order."""
    done = set()

    def divide(layer: Any, _: Any, output: torch.Tensor) -> torch.Tensor:
        if layer in done:  # shared by several levels
            return output
        done.add(layer)
        spread = output.std().clamp(min=1e-6)
        layer.weight.div_(spread)
        if layer.bias is not None:
            layer.bias.div_(spread)
        return output / spread

    layers = [one for one in part.modules() if isinstance(one, _LAYERS) and one.weight.requires_grad]
    hooks = [one.register_forward_hook(divide) for one in layers]
    model(*noise)
    for hook in hooks:
        hook.remove()
