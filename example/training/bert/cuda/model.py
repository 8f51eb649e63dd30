"""A small BERT for masked words; the output layer shares the weights of the word embedding."""

from __future__ import annotations

import torch
from torch import nn


class Bert(nn.Module):
    """Predicts the masked words of a text."""

    def __init__(self, words: int, length: int, width: int = 64, layers: int = 2, heads: int = 4) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.places = nn.Embedding(length, width)
        self.first_norm = nn.LayerNorm(width)
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, 0.1, "gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width))
        self.decoder = nn.Linear(width, words)
        nn.init.normal_(self.words.weight, std=0.02)
        self.decoder.weight = self.words.weight

    def forward(self, numbers: torch.Tensor) -> torch.Tensor:
        """Return the scores of all words at every position."""
        places = torch.arange(numbers.shape[1], device=numbers.device)
        x = self.first_norm(self.words(numbers) + self.places(places))
        return self.decoder(self.head(self.encoder(x, src_key_padding_mask=numbers == 0)))
