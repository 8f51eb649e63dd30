"""The network of language_id: a one-layer transformer encoder over subword tokens."""

from __future__ import annotations

import torch
from torch import nn

TOKENS, LONGEST = 1024, 128
"""Size of the vocabulary, and largest number of tokens of a text."""

SIZE, HEADS = 96, 4

FAR = -10000.0
"""Added to the attention scores of padding; within the range of float16."""


class Block(nn.Module):
    """Self-attention and two linear layers, each with a layer norm before it and a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(SIZE), nn.LayerNorm(SIZE)
        self.query, self.key, self.value, self.out = (nn.Linear(SIZE, SIZE) for _ in range(4))
        self.wide, self.narrow = nn.Linear(SIZE, 2 * SIZE), nn.Linear(2 * SIZE, SIZE)
        self.drop = nn.Dropout(0.1)

    def forward(self, hidden: torch.Tensor, away: torch.Tensor) -> torch.Tensor:
        """Return N x L x SIZE; ``away`` is N x 1 x 1 x L: 0 for tokens, FAR for padding."""
        found = self.before(hidden)
        query, key, value = (self._heads(layer(found)) for layer in (self.query, self.key, self.value))
        weights = torch.softmax(query @ key.transpose(-1, -2) * (SIZE // HEADS) ** -0.5 + away, dim=-1)
        mixed = (weights @ value).transpose(1, 2).flatten(2)
        hidden = hidden + self.drop(self.out(mixed))
        return hidden + self.drop(self.narrow(nn.functional.gelu(self.wide(self.between(hidden)))))

    @staticmethod
    def _heads(found: torch.Tensor) -> torch.Tensor:
        return found.unflatten(-1, (HEADS, SIZE // HEADS)).transpose(1, 2)


class LanguageId(nn.Module):
    """Token numbers and their mask in, N x L int64 each; logits of the languages out, N x C.

    Args:
        classes: number of languages C.
    """

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(TOKENS, SIZE), nn.Embedding(LONGEST, SIZE)
        nn.init.normal_(self.tokens.weight, std=0.3)
        nn.init.normal_(self.places.weight, std=0.05)
        self.block, self.norm = Block(), nn.LayerNorm(SIZE)
        self.drop, self.classify = nn.Dropout(0.2), nn.Linear(SIZE, classes)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Return the logits, computed from the mean over the tokens of each text."""
        mask = attention_mask.to(self.tokens.weight.dtype)
        places = self.places(torch.arange(input_ids.shape[1], device=input_ids.device))
        hidden = self.block(self.drop(self.tokens(input_ids)) + places, (1 - mask)[:, None, None, :] * FAR)
        kept = self.norm(hidden) * mask[..., None]
        found: torch.Tensor = self.classify(self.drop(kept.sum(1) / mask.sum(1, keepdim=True)))
        return found
