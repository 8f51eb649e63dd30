"""Heads of text encoders: token vectors, a vector per text, classes of texts or tokens, or spans."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from engine import ConfigError
from tecoinfer_modelzoo.text import did_you_mean
from utils.export.networks.bert_encoder import ALBERT, DISTILBERT, ELECTRA, Encoder, Sizes

POOLINGS = ("mean", "cls", "max")
"""Poolings of the token vectors: mean, first token, elementwise maximum."""

LENGTH_FLOOR = 1e-6
"""Minimum norm for normalization, in the range of float16 unlike torch's default 1e-12."""


class Headed(nn.Module):  # type: ignore[misc]
    """Base class of an encoder with a head; ``outputs``: names of what ``forward`` returns."""

    outputs: tuple[str, ...] = ()

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.base = Encoder(sizes)


class Hidden(Headed):
    """Token vectors."""

    outputs = ("last_hidden_state",)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None) -> Tensor:
        """Return N x L x D."""
        found: Tensor = self.base(input_ids, attention_mask, token_type_ids)
        return found


class Embedded(Headed):
    """One vector for each text."""

    outputs = ("sentence_embedding",)

    def __init__(self, sizes: Sizes, pooling: str = "mean", normalize: bool = True) -> None:
        super().__init__(sizes)
        self.pooling, self.normalize = checked(pooling), normalize

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None) -> Tensor:
        """Return N x D, of norm 1 with ``normalize``."""
        x = pooled(self.base(input_ids, attention_mask, token_type_ids), attention_mask, self.pooling)
        return functional.normalize(x, dim=1, eps=LENGTH_FLOOR) if self.normalize else x


class Classified(Headed):
    """A logit for each class: the heads are a linear layer and tanh (ELECTRA: GELU, DistilBERT: ReLU) on the first
    token's vector, then a linear layer; with a ``pooling``, a linear layer on the pooled vector.
    """

    outputs = ("logits",)

    def __init__(self, sizes: Sizes, classes: int, pooling: str | None = None) -> None:
        super().__init__(sizes)
        self.pooling = None if pooling is None else checked(pooling)
        self.dropout, self.kind = nn.Dropout(sizes.dropout), sizes.kind
        between, last = nn.Linear(sizes.width, sizes.width), nn.Linear(sizes.width, classes)
        if pooling is not None:
            self.classifier = last
        elif sizes.kind in ("bert", ALBERT):
            self.pooler = nn.ModuleDict({"dense": between})
            self.classifier = last
        elif sizes.kind == DISTILBERT:
            self.pre_classifier, self.classifier = between, last
        else:
            self.classifier = nn.ModuleDict({"dense": between, "out_proj": last})

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None) -> Tensor:
        """Return N x C logits."""
        x = self.base(input_ids, attention_mask, token_type_ids)
        last = self.classifier
        if self.pooling is not None:
            one = pooled(x, attention_mask, self.pooling)
        elif isinstance(last, nn.ModuleDict):
            one, last = last["dense"](x[:, 0]), last["out_proj"]
            one = functional.gelu(one) if self.kind == ELECTRA else one.tanh()
        elif self.kind == DISTILBERT:
            one = self.pre_classifier(x[:, 0]).relu()
        else:
            one = self.pooler["dense"](x[:, 0]).tanh()
        found: Tensor = last(self.dropout(one))
        return found


class TokenClassified(Headed):
    """A logit of each class for each token: the heads are a linear layer on the token's vector."""

    outputs = ("logits",)

    def __init__(self, sizes: Sizes, classes: int) -> None:
        super().__init__(sizes)
        self.dropout, self.classifier = nn.Dropout(sizes.dropout), nn.Linear(sizes.width, classes)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None) -> Tensor:
        """Return N x L x C logits, including padding."""
        found: Tensor = self.classifier(self.dropout(self.base(input_ids, attention_mask, token_type_ids)))
        return found


class Spanned(Headed):
    """Start and end logits of an answer span for each token."""

    outputs = ("start_logits", "end_logits")

    def __init__(self, sizes: Sizes) -> None:
        super().__init__(sizes)
        self.qa_outputs = nn.Linear(sizes.width, 2)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return start and end logits, N x L each, including padding."""
        start, end = self.qa_outputs(self.base(input_ids, attention_mask, token_type_ids)).unbind(2)
        return start, end


def checked(pooling: str) -> str:
    """Return a pooling; raise ConfigError if it is unknown."""
    if pooling not in POOLINGS:
        raise ConfigError(f"unknown pooling {pooling!r};{did_you_mean(pooling, POOLINGS)} use {', '.join(POOLINGS)}")
    return pooling


def pooled(x: Tensor, mask: Tensor, pooling: str) -> Tensor:
    """Return a vector per text, N x D, from N x L x D without the tokens that N x L masks exclude."""
    if pooling == "cls":
        return x[:, 0]
    known = mask.to(x.dtype)[:, :, None]
    if pooling == "max":
        return (x + (1 - known) * -1e4).amax(1)
    return (x * known).sum(1) / known.sum(1).clamp(min=1)
