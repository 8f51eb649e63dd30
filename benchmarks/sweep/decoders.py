"""Decoders of text: with the keys and values of earlier tokens as inputs and outputs, and without."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from sweep.row import BATCH, TEXT_AXES, Row, floats, numbers, several, text
from sweep.text import TOKENS, VOCABULARY, Picked

WIDTH, HEADS, LAYERS, PAST = 48, 4, 2, 6
HEAD = WIDTH // HEADS


class Block(nn.Module):
    """A layer of GPT-2 that appends to its cache."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.wide = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the new hidden states, keys and values."""
        batch, length, _ = x.shape
        q, k, v = self.qkv(self.first(x)).chunk(3, -1)
        q, k, v = (part.view(batch, length, HEADS, HEAD).transpose(1, 2) for part in (q, k, v))
        key, value = torch.cat([key, k], 2), torch.cat([value, v], 2)
        scores = q @ key.transpose(2, 3) / HEAD**0.5
        rows = torch.arange(length)[:, None] + (key.shape[2] - length)
        seen = torch.arange(key.shape[2])[None] <= rows
        scores = scores.masked_fill(~seen, torch.finfo(scores.dtype).min)
        mixed = (scores.softmax(-1) @ value).transpose(1, 2).reshape(batch, length, WIDTH)
        x = x + self.out(mixed)
        return x + self.wide(self.second(x)), key, value


class Decoder(nn.Module):
    """A GPT-2-like decoder; inputs and outputs are every layer's keys and values, (batch, heads, past, head)."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(64, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, ids: torch.Tensor, *past: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return logits, and every layer's new keys and values."""
        places = torch.arange(ids.shape[1]) + past[0].shape[2]
        x, present = self.words(ids) + self.places(places), []
        for i, block in enumerate(self.blocks):
            x, key, value = block(x, past[2 * i], past[2 * i + 1])
            present += [key, value]
        return (self.head(self.norm(x)), *present)


class Stacked(Decoder):
    """The same with one tensor of all keys and values: (layers, 2, batch, heads, past, head), the batch on axis 2."""

    def forward(self, ids: torch.Tensor, past: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:  # type: ignore[override]
        """Return logits and the new stack."""
        logits, *present = super().forward(ids, *past.reshape(-1, *past.shape[2:]).unbind(0))
        return logits, torch.stack(present).reshape(LAYERS, 2, *present[0].shape)


class Rms(nn.Module):
    """Root mean square norm, in float32 as LLaMA computes it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return x of unit mean square."""
        y = x.float()
        return self.weight * (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


class Llama(nn.Module):
    """A LLaMA-like layer stack: rotary positions, grouped queries, gated linear units, a cache, one new token."""

    def __init__(self, groups: int = 2) -> None:
        super().__init__()
        self.groups = groups
        self.words = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(
            nn.ModuleDict({
                "a": Rms(WIDTH), "b": Rms(WIDTH), "q": nn.Linear(WIDTH, WIDTH, False),
                "k": nn.Linear(WIDTH, groups * HEAD, False), "v": nn.Linear(WIDTH, groups * HEAD, False),
                "o": nn.Linear(WIDTH, WIDTH, False), "gate": nn.Linear(WIDTH, 96, False),
                "up": nn.Linear(WIDTH, 96, False), "down": nn.Linear(96, WIDTH, False),
            }) for _ in range(LAYERS)
        )  # fmt: skip
        self.norm, self.head = Rms(WIDTH), nn.Linear(WIDTH, VOCABULARY, False)
        self.register_buffer("rates", 1.0 / 10000 ** (torch.arange(0, HEAD, 2) / HEAD))

    def forward(self, ids: torch.Tensor, place: torch.Tensor, *past: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return logits of the new tokens and the new cache; ``place`` is every token's position (batch, tokens)."""
        x, present = self.words(ids), []
        angles = place[..., None].to(torch.float32) * self.rates.float()
        turn = torch.cat([angles, angles], -1)[:, None]
        cos, sin = turn.cos().to(x.dtype), turn.sin().to(x.dtype)
        for i, layer in enumerate(self.layers):
            y = layer["a"](x)
            q, k, v = (self._heads(layer[name](y)) for name in "qkv")
            q, k = q * cos + _turned(q) * sin, k * cos + _turned(k) * sin
            k, v = torch.cat([past[2 * i], k], 2), torch.cat([past[2 * i + 1], v], 2)
            present += [k, v]
            wide = (t.repeat_interleave(HEADS // self.groups, 1) for t in (k, v))
            mixed = nn.functional.scaled_dot_product_attention(q, *wide)
            x = x + layer["o"](mixed.transpose(1, 2).flatten(2))
            y = layer["b"](x)
            x = x + layer["down"](nn.functional.silu(layer["gate"](y)) * layer["up"](y))
        return (self.head(self.norm(x)), *present)

    def _heads(self, x: torch.Tensor) -> torch.Tensor:
        return x.view(x.shape[0], x.shape[1], -1, HEAD).transpose(1, 2)


def _turned(x: torch.Tensor) -> torch.Tensor:
    a, b = x.chunk(2, -1)
    return torch.cat([-b, a], -1)


def _cache(heads: int) -> tuple:  # type: ignore[type-arg]
    return (floats(heads, PAST, HEAD),) * (2 * LAYERS)


def _stacked(rng: np.random.Generator, count: int) -> list[np.ndarray]:
    return [*numbers(VOCABULARY, 3)(rng, count), rng.standard_normal((LAYERS, 2, count, HEADS, PAST, HEAD), np.float32)]


def _places(rng: np.random.Generator, count: int) -> list[np.ndarray]:
    return [PAST + np.tile(np.arange(1), (count, 1))]


PASTS = tuple(f"past_{i}_{part}" for i in range(LAYERS) for part in ("key", "value"))
PRESENTS = tuple(name.replace("past", "present") for name in PASTS)
CACHE_AXES = {name: {0: BATCH, 2: "past"} for name in PASTS}


def _gpt2() -> nn.Module:
    import transformers

    config = transformers.GPT2Config(vocab_size=VOCABULARY, n_positions=64, n_embd=WIDTH, n_layer=2, n_head=4,
                                     bos_token_id=1, eos_token_id=2, use_cache=False)  # fmt: skip
    return Picked(transformers.GPT2LMHeadModel(config), TOKENS, ("logits",))


def _qwen() -> nn.Module:
    import transformers

    config = transformers.Qwen2Config(vocab_size=VOCABULARY, hidden_size=WIDTH, intermediate_size=96,
                                      num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                                      use_cache=False)  # fmt: skip
    return Picked(transformers.Qwen2ForCausalLM(config), TOKENS, ("logits",))


class Translator(nn.Module):
    """torch's own encoder and decoder with a causal mask, as translation uses it."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.core = nn.Embedding(VOCABULARY, 32), nn.Transformer(32, 4, 1, 2, 64, batch_first=True)
        self.head = nn.Linear(32, VOCABULARY)

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Return logits of every next token."""
        mask = torch.full((target.shape[1], target.shape[1]), float("-inf"), dtype=self.head.weight.dtype).triu(1)
        return self.head(self.core(self.words(source), self.words(target), tgt_mask=mask))


ROWS = (
    Row("decoder with a cache", Decoder, several(numbers(VOCABULARY, 3), *_cache(HEADS)), ("ids", *PASTS),
        ("logits", *PRESENTS), {"ids": {0: BATCH}, **CACHE_AXES}),
    Row("decoder, stacked cache", Stacked, _stacked, ("ids", "past"), ("logits", "present"),
        {"ids": {0: BATCH}, "past": {2: BATCH, 4: "past"}}),
    Row("llama with a cache", Llama, several(numbers(VOCABULARY, 1), _places, *_cache(2)), ("ids", "place", *PASTS),
        ("logits", *PRESENTS), {"ids": {0: BATCH}, "place": {0: BATCH}, **CACHE_AXES}),
    Row("gpt-2", _gpt2, text(VOCABULARY), TOKENS, ("logits",), TEXT_AXES),
    Row("qwen 2", _qwen, text(VOCABULARY), TOKENS, ("logits",), TEXT_AXES),
    Row("encoder-decoder (causal mask)", Translator, several(numbers(VOCABULARY, 9), numbers(VOCABULARY, 5)),
        ("source", "target"), ("logits",), refusals={"dynamo/export": "data-dependent|depends on values"}),
)  # fmt: skip
