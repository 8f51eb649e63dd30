"""Random weights that a float16 file can be judged on: no number explodes, vanishes or is NaN, whatever the network.

Weights as a network is made with let activations grow or fade from block to block, and a deep stack of them amplifies
any rounding a hundredfold, as trained weights do not. So after seeding

- the last batch norm of every residual block is scaled down, which keeps the network near to its shortcuts; where
  there are no residual blocks, batch norms get a bias of two standard deviations, so that hardly a rectifier cuts
  anything off (each that does spreads two nearly equal inputs by a fifth, which 70 of them in a row make 10^5);
- weights that begin as zeros (the head of a vision transformer) get small noise, and layer scales that begin at almost
  nothing (ConvNeXt's 1e-6) the scale of a residual block: otherwise half of the network would not be seen;
- batch norms take the statistics of a batch of noise, and a network without any norm has each layer divided by what it
  makes of that noise (Mishkin and Matas, "All you need is a good init", 2016).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

RANDOM = "random"
"""The ``weights`` that need no file: seeded noise, for functional and speed checks only."""

RESIDUAL_SCALE = 0.25
"""Scale of a residual block's last batch norm, and of its layer scale, under random weights."""

BIAS = 2.0
"""Bias of batch norms, in their own standard deviations, where there are no residual blocks."""

SIZE = 224
"""Side of the noise that statistics are taken of, in pixels, where the network takes any."""

IMAGES = 2
"""Images of noise of that side; of smaller ones there are as many as have as many pixels together.

With fewer, the variance over the one or two values of a small map's channel is near to nothing now and then, and what
is divided by it are rounding errors.
"""

_RESIDUAL = re.compile(
    r"_?(BasicBlock|Bottleneck|Bottle2neck|InvertedResidual|EdgeResidual|UniversalInvertedResidual|MBConv|FusedMBConv"
    r"|ResBottleneckBlock|DepthwiseSeparableConv|ResNestBottleneck|SequentialAttentionBlock|DarkBlock|GhostBottleneck)"
)
"""Classes of residual blocks whose branch ends in a batch norm, torchvision's and timm's."""

_SHORTCUTS = re.compile(r"(downsample|shortcut|proj)\b")
"""Modules of a block that are on the shortcut."""

_ALMOST_NOTHING = 1e-3
_SMALL = 0.02
_LAYERS = (nn.Conv1d, nn.Conv2d, nn.Linear)
_NORMS = (nn.modules.batchnorm._BatchNorm, nn.LayerNorm, nn.GroupNorm)


def seeded(make: Callable[[], nn.Module], size: tuple[int, int] | None = None) -> nn.Module:
    """Make a network and give it seeded random weights; the caller's random numbers are left alone.

    Args:
        make: returns the network as it is made, with three input channels.
        size: height and width of the images it takes; ``None`` for one that takes any.

    Returns:
        It, in eval mode.
    """
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
            _take_statistics(model, norms, _noise(size))
        elif not any(isinstance(module, _NORMS) for module in model.modules()):
            _divide_layers(model, model, _noise(size))
    return model.eval()


def divide_layers(model: nn.Module, part: nn.Module, size: tuple[int, int]) -> None:
    """Divide the layers of a part without norms, such as a detector's head, by the standard deviations they make.

    Otherwise each layer of torchvision's heads makes its values ten times smaller, until float16 has none.

    Args:
        model: the network, in eval mode. part: one of its modules.
        size: height and width of its images.
    """
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        _divide_layers(model, part, _noise(size))


def _noise(size: tuple[int, int] | None) -> torch.Tensor:
    height, width = size or (SIZE, SIZE)
    return torch.randn(max(IMAGES, -(-IMAGES * SIZE * SIZE // (height * width))), 3, height, width)


def _fill_constants(model: nn.Module) -> None:
    """Give weights that begin as zeros noise, and layer scales that begin at almost nothing a size."""
    for parameter in model.parameters():
        first = parameter.flatten()[:1]
        if not parameter.is_floating_point() or not bool((parameter == first).all()):
            continue
        if parameter.ndim > 1 and not first.any():
            parameter.normal_(std=_SMALL)
        elif first.any() and abs(float(first)) <= _ALMOST_NOTHING:
            parameter.fill_(RESIDUAL_SCALE)


def _last_norms(model: nn.Module) -> Iterator[Any]:
    """Yield the last batch norm of every residual block, those of the shortcuts aside."""
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


def _take_statistics(model: nn.Module, norms: list[Any], noise: torch.Tensor) -> None:
    """Run noise through the network with its batch norms, and nothing else, in training mode."""
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.momentum = 1.0  # take the statistics of this one batch
        norm.train()
    model(noise)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
        norm.eval()


def _divide_layers(model: nn.Module, part: nn.Module, noise: torch.Tensor) -> None:
    """Divide every layer of a part by the standard deviation of what it makes of noise, in the order they are run."""
    done = set()

    def divide(layer: Any, _: Any, output: torch.Tensor) -> torch.Tensor:
        if layer in done:  # a head that several levels share
            return output
        done.add(layer)
        spread = output.std().clamp(min=1e-6)
        layer.weight.div_(spread)
        if layer.bias is not None:
            layer.bias.div_(spread)
        return output / spread

    hooks = [one.register_forward_hook(divide) for one in part.modules() if isinstance(one, _LAYERS)]
    model(noise)
    for hook in hooks:
        hook.remove()
