"""The pair of networks: one describes an image, one a text, as vectors of the same space."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

SIZE, VECTOR, WIDTH, HEADS, LENGTH = 48, 64, 64, 2, 12
"""Sides of the image; length of a vector; width and heads of the text's attention; tokens of a text at most."""

PIXELS = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
"""Mean and deviation of the pixels (the usual ones), which the export stores."""


def _stage(inputs: int, outputs: int, stride: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()
    )


class ImageEncoder(nn.Module):
    """N x 3 x 48 x 48 images in, N x 64 vectors of length 1 out; the last features keep their places (6 x 6)."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(_stage(3, 24, 2), _stage(24, 48, 2), _stage(48, 64, 2), _stage(64, 32, 1))
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(32 * 36, 96), nn.ReLU(), nn.Linear(96, VECTOR))

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        """Return the vectors of images."""
        return functional.normalize(self.head(self.body(pixels)), dim=-1)


class TextEncoder(nn.Module):
    """N x T token ids and their mask (1 for a token, 0 for padding) in, N x 64 vectors of length 1 out."""

    def __init__(self, words: int) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(3))
        self.feed = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH))
        self.head = nn.Linear(WIDTH, VECTOR)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Return the vectors of texts."""
        mask = attention_mask.to(torch.float32)
        places = torch.arange(input_ids.shape[1], device=input_ids.device)
        x = self.words(input_ids) + self.places(places)
        x = x + self.out(self._attended(self.norms[0](x), mask))
        x = x + self.feed(self.norms[1](x))
        mean = (self.norms[2](x) * mask[..., None]).sum(dim=1) / mask.sum(dim=1, keepdim=True).clamp(min=1)
        return functional.normalize(self.head(mean), dim=-1)

    def _attended(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        query, key, value = (
            layer(x).unflatten(-1, (HEADS, WIDTH // HEADS)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        scores = query @ key.transpose(-1, -2) / (WIDTH // HEADS) ** 0.5
        shares = torch.softmax(scores + (mask[:, None, None] - 1) * 1e4, dim=-1)
        return (shares @ value).transpose(1, 2).flatten(-2)


class DigitClip(nn.Module):
    """Both networks, and the factor of their cosines (CLIP, Radford et al., 2021)."""

    def __init__(self, words: int) -> None:
        super().__init__()
        self.image, self.text = ImageEncoder(), TextEncoder(words)
        self.scale = nn.Parameter(torch.tensor(2.5))

    def forward(self, pixels: torch.Tensor, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Return the scores of all pairs of an image and a text, N x M."""
        return self.scale.exp() * self.image(pixels) @ self.text(input_ids, attention_mask).T
