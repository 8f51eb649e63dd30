"""ShuffleNet V2 with the variants of its channel shuffle that the tuning case compares.

Blocks have the weight names and the values of torchvision's; only the operation that joins the two branches differs.
Blocks that return two halves return a pair.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from torch_sdaa.contrib.optimized_lib import ChannelShuffle
from utils.export.networks.torchvision_models import import_torchvision

Pair = tuple[Tensor, Tensor]
Mix = Callable[[Tensor, Tensor], Any]


def order(channels: int) -> list[int]:
    """Return the source channel of each channel of a shuffle of two groups."""
    half = channels // 2
    return [k // 2 + half * (k % 2) for k in range(channels)]


class HostIndex(nn.Module):
    """Concat, then one index_select with an index that is created on the host in every call."""

    def __init__(self, channels: int, split: bool) -> None:
        super().__init__()
        self.order, self.split = order(channels), split

    def forward(self, x1: Tensor, x2: Tensor) -> Any:
        """Return the mixed channels."""
        x = torch.cat((x1, x2), 1)
        return x.index_select(1, torch.tensor(self.order).to(x.device))


class HostHalves(HostIndex):
    """The same with two index_selects if the halves are needed, so that no tensor is split."""

    def forward(self, x1: Tensor, x2: Tensor) -> Any:
        """Return the mixed channels, or their two halves."""
        if not self.split:
            return super().forward(x1, x2)
        x, half = torch.cat((x1, x2), 1), len(self.order) // 2
        parts = (torch.tensor(each).to(x.device) for each in (self.order[:half], self.order[half:]))
        return tuple(x.index_select(1, index) for index in parts)


class Buffers(nn.Module):
    """The same with the indices on the device, as non-persistent buffers."""

    def __init__(self, channels: int, split: bool) -> None:
        super().__init__()
        picked = torch.tensor(order(channels))
        for k, index in enumerate(picked.chunk(2) if split else (picked,)):
            self.register_buffer(f"index{k}", index.clone(), persistent=False)
        for k in range(2):  # from where the gradients of x1 and x2 come
            self.register_buffer(f"back{k}", torch.arange(k, channels, 2), persistent=False)
        self.indices = 2 if split else 1

    def picks(self) -> list[Tensor]:
        """Return the indices of the results."""
        return [self.get_buffer(f"index{k}") for k in range(self.indices)]

    def forward(self, x1: Tensor, x2: Tensor) -> Any:
        """Return the mixed channels, or their two halves."""
        x = torch.cat((x1, x2), 1)
        made = tuple(x.index_select(1, index) for index in self.picks())
        return made if self.indices == 2 else made[0]


class _Selected(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x1: Tensor, x2: Tensor, backs: Pair, picks: list[Tensor]) -> tuple[Tensor, ...]:
        ctx.backs = backs
        x = torch.cat((x1, x2), 1)
        return tuple(x.index_select(1, index) for index in picks)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        grad = torch.cat(grads, 1) if len(grads) > 1 else grads[0]
        return *(grad.index_select(1, back) for back in ctx.backs), None, None


class OwnBackward(Buffers):
    """The same with a custom backward: two index_selects instead of index_add and split."""

    def forward(self, x1: Tensor, x2: Tensor) -> Any:
        """Return the mixed channels, or their two halves."""
        made = _Selected.apply(x1, x2, (self.get_buffer("back0"), self.get_buffer("back1")), self.picks())
        return tuple(made) if self.indices == 2 else made[0]


MIXES: dict[str, Callable[[int, bool], nn.Module]] = {
    "host index": HostIndex,
    "host halves": HostHalves,
    "buffers": Buffers,
    "own backward": OwnBackward,
    "one operator": lambda channels, split: ChannelShuffle(channels, 2, split),
}
"""Operations that join the branches of a block; all but the first can return two halves."""


class Block(nn.Module):
    """A block of ShuffleNet V2: torchvision's branches, joined by ``mix``."""

    def __init__(self, theirs: Any, mix: nn.Module) -> None:
        super().__init__()
        self.branch1, self.branch2 = theirs.branch1, theirs.branch2
        self.mix, self.cuts = mix, theirs.stride == 1

    def forward(self, x: Tensor | Pair) -> Any:
        """Return the block's output: a tensor, or the halves that the next block takes."""
        if self.cuts:
            x1, x2 = x.chunk(2, 1) if isinstance(x, Tensor) else x
            return self.mix(x1, self.branch2(x2))
        return self.mix(self.branch1(x), self.branch2(x))


def shufflenet(mix: str | None = None, classes: int = 1000) -> nn.Module:
    """Return ``shufflenet_v2_x1_0``: torchvision's own, or with blocks joined by one of :data:`MIXES`."""
    model: nn.Module = import_torchvision().models.shufflenet_v2_x1_0(num_classes=classes)
    if mix is None:
        return model
    for stage in _stages(model):
        blocks = list(stage.children())
        for k, theirs in enumerate(blocks):
            channels = 2 * theirs.branch2[-3].out_channels
            splits = k + 1 < len(blocks) and mix != "host index"
            stage[k] = Block(theirs, MIXES[mix](channels, splits))
    return model


def _stages(model: Any) -> Iterator[Any]:
    yield from (model.stage2, model.stage3, model.stage4)
