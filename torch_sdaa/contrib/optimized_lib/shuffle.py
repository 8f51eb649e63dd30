"""ShuffleNet's channel shuffle with the preceding concat and the following split: one launch, and one for backward."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from engine import ConfigError
from torch_sdaa.contrib.optimized_lib import kernels  # noqa: F401 -- defines the operators


class _Shuffle(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, groups: int, pieces: int, *parts: Tensor) -> tuple[Tensor, ...]:
        ctx.groups, ctx.sizes = groups, [part.shape[1] for part in parts]
        return tuple(torch.ops.sdaa.shuffle_channels(list(parts), groups, pieces))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return None, None, *_Unshuffle.apply(ctx.groups, ctx.sizes, *grads)


class _Unshuffle(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, groups: int, sizes: list[int], *pieces: Tensor) -> tuple[Tensor, ...]:
        ctx.groups, ctx.pieces = groups, len(pieces)
        return tuple(torch.ops.sdaa.unshuffle_channels(list(pieces), groups, sizes))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return None, None, *_Shuffle.apply(ctx.groups, ctx.pieces, *grads)


class ChannelShuffle(nn.Module):
    """``channel_shuffle(torch.cat((x1, x2), 1), groups)``, with ``.chunk(2, 1)`` of it.

    It has no parameters or buffers, so that checkpoints with and without it are compatible.

    Args:
        inp: channels of both inputs together. groups: number of groups between which channels are mixed.
        split_shuffle: return the two halves for the next block; else one tensor.

    Raises:
        ConfigError: the channels cannot be divided.
    """

    def __init__(self, inp: int, groups: int = 2, split_shuffle: bool = True) -> None:
        super().__init__()
        if groups < 1 or inp < 1 or inp % groups:
            raise ConfigError(f"ChannelShuffle: {inp} channels are not a multiple of groups={groups}")
        if split_shuffle and inp % 2:
            raise ConfigError(f"ChannelShuffle: {inp} channels cannot be halved; use split_shuffle=False")
        self.inp, self.groups, self.split_shuffle = inp, groups, split_shuffle

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        """Return the mixed channels of both inputs: one tensor, or its halves."""
        for x in (x1, x2):
            if not isinstance(x, Tensor) or x.dim() < 2:
                found = tuple(x.shape) if isinstance(x, Tensor) else type(x).__name__
                raise ConfigError(f"ChannelShuffle takes two tensors, N x channels and more, not {found}")
        first, second = x1.shape[1], x2.shape[1]
        if first + second != self.inp:
            raise ConfigError(
                f"ChannelShuffle(inp={self.inp}) got {first} and {second} channels: inp is their sum, {first + second}"
            )
        made = _Shuffle.apply(self.groups, 2 if self.split_shuffle else 1, *_of_one_dtype((x1, x2)))
        return tuple(made) if self.split_shuffle else made[0]

    def extra_repr(self) -> str:
        """Return the arguments of the module."""
        return f"{self.inp}, groups={self.groups}, split_shuffle={self.split_shuffle}"


def _of_one_dtype(parts: Sequence[Tensor]) -> list[Tensor]:
    """Return the parts in the dtype of their concatenation."""
    dtype = parts[0].dtype
    for part in parts[1:]:
        dtype = torch.promote_types(dtype, part.dtype)
    return [part.to(dtype) for part in parts]
