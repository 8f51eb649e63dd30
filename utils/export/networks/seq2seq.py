"""Encoder-decoder networks for translation, Marian and T5, as an encoder file and a decoder file with a cache.

Weights have transformers' names, which is not needed itself. Marian: Junczys-Dowmunt et al., "Marian: Fast Neural
Machine Translation in C++" (2018), a transformer with norms after each block (Vaswani et al., 2017). T5: Raffel et al.,
"Exploring the Limits of Transfer Learning" (2020): norms before each block without a mean, biases by relative position.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from engine import ModelError
from utils.export.networks.bert_encoder import MASKED, read_config

KINDS = ("marian", "t5")
"""Supported values of ``model_type`` in ``config.json``."""

_ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "swish": functional.silu,
    "silu": functional.silu,
    "relu": functional.relu,
    "gelu": functional.gelu,
    "gelu_new": partial(functional.gelu, approximate="tanh"),
}


@dataclass(frozen=True)
class Form:
    """Sizes of an encoder-decoder.

    Attributes:
        kind: one of :data:`KINDS`. vocabulary: number of tokens, of both sides. width: hidden size.
        size: of a head; heads x size is the width in Marian. inner: feed-forward size.
        positions: maximum tokens; T5 has no maximum, and 512 is what it was trained on.
        activation: a key of the supported ones. gated: T5 1.1's second feed-forward layer. scale: Marian's factor of
            embeddings, the root of the width. tied: the output weights are the embedding. scaled: T5's states are
            divided by that root before the output.
        buckets, farthest: T5's relative positions.
        start, end, pad: ids of the decoder's first token, of the end of a text, and of padding.
    """

    kind: str = "marian"
    vocabulary: int = 58101
    width: int = 512
    layers: int = 6
    decoder_layers: int = 6
    heads: int = 8
    size: int = 64
    inner: int = 2048
    positions: int = 512
    activation: str = "swish"
    gated: bool = False
    scale: bool = True
    tied: bool = True
    scaled: bool = True
    buckets: int = 32
    farthest: int = 128
    epsilon: float = 1e-5
    start: int = 58100
    end: int = 0
    pad: int = 58100
    dropout: float = 0.0


SIZES: Mapping[str, Form] = {
    "marian": Form(),
    "t5_small": Form("t5", 32128, inner=2048, activation="relu", scale=False, epsilon=1e-6, start=0, end=1, pad=0),
    "t5_base": Form(
        "t5", 32128, 768, 12, 12, 12, 64, 3072, activation="relu", scale=False, epsilon=1e-6, start=0, end=1, pad=0
    ),
}
"""Published sizes: OPUS-MT's models, and T5."""


def form_of(config: Mapping[str, Any], origin: str) -> Form:
    """Return the sizes in a ``config.json``; raise ModelError (with its name, ``origin``) if unsupported or invalid."""
    kind = config.get("model_type")
    if kind not in KINDS:
        raise ModelError(f"{origin}: model_type {kind!r}; supported are {', '.join(KINDS)}")
    read = _of_marian if kind == "marian" else _of_t5
    found = read(config, partial(_number, config, origin))
    if found.activation not in _ACTIVATIONS:
        raise ModelError(f"{origin}: activation {found.activation!r}; supported are {', '.join(_ACTIVATIONS)}")
    if kind == "marian" and found.heads * found.size != found.width:
        raise ModelError(f"{origin}: d_model {found.width} is not a multiple of {found.heads} heads; correct the file")
    return found


def _number(config: Mapping[str, Any], origin: str, key: str, usual: int | None = None, least: int = 1) -> int:
    value = config.get(key, usual)
    value = usual if value is None else value
    if type(value) is not int or value < least:
        raise ModelError(f"{origin}: {key} {value!r} is not an integer of at least {least}; correct the file")
    return value


def _of_marian(config: Mapping[str, Any], number: Callable[..., int]) -> Form:
    heads, inner = number("encoder_attention_heads"), number("encoder_ffn_dim")
    if heads != number("decoder_attention_heads") or inner != number("decoder_ffn_dim"):
        raise ModelError("the encoder and the decoder have other heads or feed-forward sizes; this is not supported")
    if number("decoder_vocab_size", number("vocab_size")) != number("vocab_size"):
        raise ModelError("the decoder has another vocabulary than the encoder; this is not supported")
    pad = number("pad_token_id", None, 0)
    return Form(
        "marian",
        number("vocab_size"),
        number("d_model"),
        number("encoder_layers"),
        number("decoder_layers"),
        heads,
        number("d_model") // heads,
        inner,
        number("max_position_embeddings", 512),
        str(config.get("activation_function", "swish")),
        scale=bool(config.get("scale_embedding", False)),
        start=number("decoder_start_token_id", pad, 0),
        end=number("eos_token_id", 0, 0),
        pad=pad,
        dropout=float(config.get("dropout", 0.0)),
    )


def _of_t5(config: Mapping[str, Any], number: Callable[..., int]) -> Form:
    projection = str(config.get("feed_forward_proj", "relu"))
    gated = projection.startswith("gated-")
    activation = "gelu_new" if projection == "gated-gelu" else projection.removeprefix("gated-")
    return Form(
        "t5",
        number("vocab_size"),
        number("d_model"),
        number("num_layers"),
        number("num_decoder_layers", number("num_layers")),
        number("num_heads"),
        number("d_kv"),
        number("d_ff"),
        number("n_positions", 512),
        activation,
        gated,
        scale=False,
        tied=config.get("tie_word_embeddings") is not False,
        scaled=bool(config.get("scale_decoder_outputs", config.get("tie_word_embeddings") is not False)),
        buckets=number("relative_attention_num_buckets", 32),
        farthest=number("relative_attention_max_distance", 128),
        epsilon=float(config.get("layer_norm_epsilon", 1e-6)),
        start=number("decoder_start_token_id", 0, 0),
        end=number("eos_token_id", 1, 0),
        pad=number("pad_token_id", 0, 0),
        dropout=float(config.get("dropout_rate", 0.0)),
    )


def read_form(path: Path) -> Form:
    """Return the sizes in a ``config.json`` file; raise ModelError if it is missing, unsupported or invalid."""
    return form_of(read_config(path), str(path))


# ------------------------------------------------------------------------------------------------------------- layers


class Norm(nn.Module):  # type: ignore[misc]
    """T5's norm: divided by the root of the mean square, times weights; computed in float32."""

    def __init__(self, width: int, epsilon: float) -> None:
        super().__init__()
        self.weight, self.epsilon = nn.Parameter(torch.ones(width)), epsilon

    def forward(self, x: Tensor) -> Tensor:
        """Return N x T x width."""
        found: Tensor = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.epsilon) * self.weight
        return found


class Attention(nn.Module):  # type: ignore[misc]
    """Attention of several heads; Marian scales the queries and has biases, T5 has neither."""

    def __init__(self, form: Form) -> None:
        super().__init__()
        marian, wide = form.kind == "marian", form.heads * form.size
        names = ("q_proj", "k_proj", "v_proj", "out_proj") if marian else ("q", "k", "v", "o")
        for name in names[:3]:
            self.add_module(name, nn.Linear(form.width, wide, bias=marian))
        self.add_module(names[3], nn.Linear(wide, form.width, bias=marian))
        self.names, self.heads, self.size = names, form.heads, form.size
        self.factor = form.size**-0.5 if marian else 1.0

    def _of(self, place: int, x: Tensor) -> Tensor:
        found: Tensor = getattr(self, self.names[place])(x)
        return found

    def split(self, x: Tensor) -> Tensor:
        """Return N x heads x T x size of N x T x wide."""
        return x.reshape(x.shape[0], x.shape[1], self.heads, self.size).transpose(1, 2)

    def keys(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return keys and values of states, N x heads x T x size each."""
        return self.split(self._of(1, x)), self.split(self._of(2, x))

    def forward(self, x: Tensor, parts: Sequence[tuple[Tensor, Tensor, Tensor]]) -> Tensor:
        """Return the attention of N x T x width over one or two groups of keys, values and the bias of their scores.

        Scores are concatenated instead of keys, so that a cache is not copied.
        """
        q = self.split(self._of(0, x)) * self.factor
        scores = [q @ keys.transpose(2, 3) + bias for keys, _, bias in parts]
        share = torch.softmax(torch.cat(scores, -1) if len(scores) > 1 else scores[0], dim=-1)
        if len(parts) == 1:
            mixed = share @ parts[0][1]
        else:
            slots = parts[0][0].shape[2]
            mixed = share[..., :slots] @ parts[0][1] + share[..., slots:] @ parts[1][1]
        joined = mixed.transpose(1, 2).reshape(x.shape[0], x.shape[1], self.heads * self.size)
        return self._of(3, joined)


class FeedForward(nn.Module):  # type: ignore[misc]
    """T5's two linear layers, or three if they are gated."""

    def __init__(self, form: Form) -> None:
        super().__init__()
        names = ("wi_0", "wi_1") if form.gated else ("wi",)
        for name in names:
            self.add_module(name, nn.Linear(form.width, form.inner, bias=False))
        self.names, self.activation = names, _ACTIVATIONS[form.activation]
        self.wo = nn.Linear(form.inner, form.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return N x T x width."""
        inner = self.activation(getattr(self, self.names[0])(x))
        found: Tensor = self.wo(inner * getattr(self, self.names[1])(x) if len(self.names) > 1 else inner)
        return found


Parts = Sequence[tuple[Tensor, Tensor, Tensor]]


class MarianLayer(nn.Module):  # type: ignore[misc]
    """A layer of the encoder, or with ``cross`` of the decoder: the norm is after each block."""

    def __init__(self, form: Form, cross: bool) -> None:
        super().__init__()
        self.self_attn, self.self_attn_layer_norm = Attention(form), nn.LayerNorm(form.width)
        if cross:
            self.encoder_attn, self.encoder_attn_layer_norm = Attention(form), nn.LayerNorm(form.width)
        self.fc1, self.fc2 = nn.Linear(form.width, form.inner), nn.Linear(form.inner, form.width)
        self.final_layer_norm = nn.LayerNorm(form.width)
        self.activation, self.drop = _ACTIVATIONS[form.activation], nn.Dropout(form.dropout)

    def own(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return keys and values of the states, for self-attention."""
        return self.self_attn.keys(x)

    def cross_keys(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """Return keys and values of the encoder's states."""
        return self.encoder_attn.keys(states)

    def forward(self, x: Tensor, near: Parts, far: Parts = ()) -> Tensor:
        """Return N x T x width; ``near``: what self-attention reads, ``far``: the encoder's."""
        x = self.self_attn_layer_norm(x + self.drop(self.self_attn(x, near)))
        if far:
            x = self.encoder_attn_layer_norm(x + self.drop(self.encoder_attn(x, far)))
        found: Tensor = self.final_layer_norm(x + self.drop(self.fc2(self.activation(self.fc1(x)))))
        return found


class T5Layer(nn.Module):  # type: ignore[misc]
    """A layer of T5: the norm is before each block."""

    def __init__(self, form: Form, cross: bool) -> None:
        super().__init__()
        blocks: list[tuple[str, nn.Module]] = [("SelfAttention", Attention(form))]
        blocks += [("EncDecAttention", Attention(form))] if cross else []
        blocks += [("DenseReluDense", FeedForward(form))]
        self.layer = nn.ModuleList(
            nn.ModuleDict({name: block, "layer_norm": Norm(form.width, form.epsilon)}) for name, block in blocks
        )
        self.drop = nn.Dropout(form.dropout)

    def own(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return keys and values of the states, for self-attention."""
        found: tuple[Tensor, Tensor] = self.layer[0]["SelfAttention"].keys(self.layer[0]["layer_norm"](x))
        return found

    def cross_keys(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """Return keys and values of the encoder's states."""
        found: tuple[Tensor, Tensor] = self.layer[1]["EncDecAttention"].keys(states)
        return found

    def forward(self, x: Tensor, near: Parts, far: Parts = ()) -> Tensor:
        """Return N x T x width; ``near``: what self-attention reads, ``far``: the encoder's."""
        for block in self.layer:
            normal = block["layer_norm"](x)
            if "SelfAttention" in block:
                x = x + self.drop(block["SelfAttention"](normal, near))
            elif "EncDecAttention" in block:
                x = x + self.drop(block["EncDecAttention"](normal, far))
            else:
                x = x + self.drop(block["DenseReluDense"](normal))
        return x


class Stack(nn.Module):  # type: ignore[misc]
    """Encoder or decoder without embeddings: layers, and what gives positions."""

    def __init__(self, form: Form, cross: bool) -> None:
        super().__init__()
        count, self.form, self.cross = form.decoder_layers if cross else form.layers, form, cross
        self.drop = nn.Dropout(form.dropout)
        if form.kind == "marian":
            self.embed_positions = nn.Embedding.from_pretrained(waves(form.positions, form.width), freeze=True)
            self.layers = nn.ModuleList(MarianLayer(form, cross) for _ in range(count))
        else:
            self.block = nn.ModuleList(T5Layer(form, cross) for _ in range(count))
            attention = self.block[0].layer[0]["SelfAttention"]
            attention.relative_attention_bias = nn.Embedding(form.buckets, form.heads)
            self.final_layer_norm = Norm(form.width, form.epsilon)

    def rows(self) -> nn.ModuleList:
        """Return the layers."""
        found: nn.ModuleList = self.layers if self.form.kind == "marian" else self.block
        return found

    def placed(self, x: Tensor, places: Tensor) -> Tensor:
        """Return embeddings with their positions; T5 has none there."""
        if self.form.kind != "marian":
            return self.drop(x)
        x = x * math.sqrt(self.form.width) if self.form.scale else x
        found: Tensor = self.drop(x + self.embed_positions(places))
        return found

    def biases(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Return the bias of scores by relative position, N x heads x T x S (0 for Marian), of N x T and N x S."""
        apart = keys[:, None, :] - queries[:, :, None]
        if self.form.kind == "marian":
            return torch.zeros_like(apart[:, None], dtype=torch.float32)
        table = self.block[0].layer[0]["SelfAttention"].relative_attention_bias
        found: Tensor = table(buckets(apart, self.form, both=not self.cross)).permute(0, 3, 1, 2)
        return found

    def ended(self, x: Tensor) -> Tensor:
        """Return the states after T5's last norm."""
        found: Tensor = x if self.form.kind == "marian" else self.drop(self.final_layer_norm(x))
        return found


def waves(positions: int, width: int) -> Tensor:
    """Return Marian's positions, P x width: sines in the first half, cosines in the second."""
    half = torch.arange((width + 1) // 2)
    angles = torch.arange(positions)[:, None] / 10000.0 ** (2 * half / width)
    return torch.cat([angles.sin(), angles.cos()[:, : width // 2]], dim=1).float()


def buckets(apart: Tensor, form: Form, *, both: bool) -> Tensor:
    """Return the bucket of each distance of a key from a query, int64; ``both``: keys after the query have their own.

    Half of the buckets are single distances, the others grow with the logarithm up to ``farthest``.
    """
    count = form.buckets // 2 if both else form.buckets
    later = (apart > 0).to(torch.int64) * count if both else torch.zeros_like(apart)
    distance = apart.abs() if both else (-apart).clamp(min=0)
    exact = count // 2
    ratio = torch.log(distance.clamp(min=1).float() / exact) / math.log(form.farthest / exact)
    wide = (exact + (ratio * (count - exact)).to(torch.int64)).clamp(max=count - 1)
    return later + torch.where(distance < exact, distance, wide)


class Seq2Seq(nn.Module):  # type: ignore[misc]
    """Both parts, with the keys of transformers' weights."""

    def __init__(self, form: Form) -> None:
        super().__init__()
        self.form = form
        self.shared = nn.Embedding(form.vocabulary, form.width)
        self.encoder, self.decoder = Stack(form, False), Stack(form, True)
        if form.kind == "marian":
            self.final_logits_bias = nn.Parameter(torch.zeros(1, form.vocabulary), requires_grad=False)
        elif not form.tied:
            self.lm_head = nn.Linear(form.width, form.vocabulary, bias=False)

    def logits(self, x: Tensor) -> Tensor:
        """Return the logits of states, N x T x vocabulary."""
        found: Tensor
        if self.form.kind == "marian":
            found = x @ self.shared.weight.T + self.final_logits_bias
        else:
            x = x * self.form.width**-0.5 if self.form.scaled else x
            found = x @ (self.shared if self.form.tied else self.lm_head).weight.T
        return found

    def forward(self, ids: Tensor, mask: Tensor, target: Tensor) -> Tensor:
        """Return the logits after each target token, N x T x vocabulary, for training.

        ``ids``, ``mask``: N x S int64, of the source; ``target``: N x T int64, from the start token on.
        """
        keys, values = Encoding(self)(ids, mask)
        places = torch.arange(target.shape[1])[None].expand_as(target)
        slots = torch.zeros(target.shape[0], self.form.heads, 0, self.form.size)
        none = torch.zeros(target.shape[0], 0)
        past = [slots] * (2 * self.form.decoder_layers)
        found: Tensor = Decoding(self)(target, places, none, keys, values, mask, *past)[0]
        return found


class Encoding(nn.Module):  # type: ignore[misc]
    """The first file: source tokens in; keys and values of the decoder's cross attention out."""

    def __init__(self, whole: Seq2Seq) -> None:
        super().__init__()
        self.whole = whole

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor, Tensor]:
        """Return keys and values, N x layers x heads x S x size each, for N x S int64."""
        whole, stack = self.whole, self.whole.encoder
        places = torch.arange(input_ids.shape[1], device=input_ids.device)[None]
        x = stack.placed(whole.shared(input_ids), places)
        bias = hidden(attention_mask, x.dtype) + stack.biases(places, places).to(x.dtype)
        for layer in stack.rows():
            x = layer(x, [(*layer.own(x), bias)])
        x = stack.ended(x)
        found = [layer.cross_keys(x) for layer in whole.decoder.rows()]
        return torch.stack([k for k, _ in found], dim=1), torch.stack([v for _, v in found], dim=1)


class Decoding(nn.Module):  # type: ignore[misc]
    """The second file: tokens, a cache and the encoder's keys and values in; logits, new keys and values out."""

    def __init__(self, whole: Seq2Seq) -> None:
        super().__init__()
        self.whole = whole

    def forward(
        self,
        ids: Tensor,
        positions: Tensor,
        mask: Tensor,
        cross_keys: Tensor,
        cross_values: Tensor,
        encoder_mask: Tensor,
        *past: Tensor,
    ) -> tuple[Tensor, ...]:
        """Return the logits of new tokens, N x T x vocabulary, and their keys and values by layer.

        Args:
            ids, positions: N x T int64. mask: N x P float, 1 for a filled slot, else 0.
            cross_keys, cross_values: as :class:`Encoding` gives them. encoder_mask: N x S int64, of the source.
            past: the caches, key and value alternating, N x heads x P x size each.
        """
        whole, stack = self.whole, self.whole.decoder
        x = stack.placed(whole.shared(ids), positions)
        count = torch.arange(ids.shape[1], device=ids.device)
        later = (count[:, None] < count).to(x.dtype) * MASKED
        slots = torch.arange(mask.shape[1], device=ids.device)[None]
        near = later + stack.biases(positions, positions).to(x.dtype)
        old = ((1 - mask) * MASKED)[:, None, None, :] + stack.biases(positions, slots).to(x.dtype)
        far = hidden(encoder_mask, x.dtype)
        new: list[Tensor] = []
        for place, layer in enumerate(stack.rows()):
            k, v = layer.own(x)
            groups = [(past[2 * place], past[2 * place + 1], old), (k, v, near)]
            x = layer(x, groups, [(cross_keys[:, place], cross_values[:, place], far)])
            new += [k, v]
        return (whole.logits(stack.ended(x)), *new)


def hidden(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the score bias of N x S masks, N x 1 x 1 x S: 0 for tokens, :data:`MASKED` for padding."""
    return (1 - mask.to(dtype))[:, None, None, :] * MASKED


def fitted_state(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return weights under this network's keys: without ``model.``, and each shared table once."""
    copies = ("encoder.embed_tokens.", "decoder.embed_tokens.")
    found = {key.removeprefix("model."): value.float() for key, value in state.items()}
    return {key: value for key, value in found.items() if not key.startswith(copies)}


def cache_names(layers: int, prefix: str) -> list[str]:
    """Return the names of the caches: ``past.0.key``, ``past.0.value``, ..."""
    return [f"{prefix}.{layer}.{what}" for layer in range(layers) for what in ("key", "value")]
