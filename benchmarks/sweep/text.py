"""Text encoders, small ones of transformers and torch's own, fed with padded tokens and their mask."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from sweep.row import TEXT_AXES, Row, text
from utils.export.networks.torchvision_models import import_torchvision

import_torchvision()  # transformers needs it whole

VOCABULARY = 200
SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 96,
    "max_position_embeddings": 64,
}
TOKENS = ("input_ids", "attention_mask")


class Picked(nn.Module):
    """A model of transformers, called by keywords, and some of its outputs."""

    def __init__(self, inner: nn.Module, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> None:
        super().__init__()
        self.inner, self.inputs, self.outputs = inner, inputs, outputs

    def forward(self, first: torch.Tensor, second: torch.Tensor | None = None) -> tuple[torch.Tensor, ...]:
        """Return the chosen outputs."""
        found = self.inner(**dict(zip(self.inputs, (first, second), strict=False)))
        return tuple(found[key] for key in self.outputs)


class Pooled(nn.Module):
    """An encoder whose embeddings are the mean over the tokens that are not padding, of length 1."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Return one embedding per text."""
        hidden = self.inner(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        kept = attention_mask.to(hidden.dtype)[..., None]
        return nn.functional.normalize((hidden * kept).sum(1) / kept.sum(1).clamp(min=1e-9), dim=1)


class Plain(nn.Module):
    """torch's own encoder with a padding mask, and a score for each text."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(48, 4, 96, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.words = nn.Embedding(VOCABULARY, 48)
        self.places = nn.Parameter(torch.randn(64, 48) * 0.1)
        self.head = nn.Linear(48, 3)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Return class scores."""
        x = self.words(input_ids) + self.places[: input_ids.shape[1]]
        return self.head(self.encoder(x, src_key_padding_mask=attention_mask == 0)[:, 0])


def _hidden(kind: str, key: str = "last_hidden_state", **options: Any) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        import transformers

        config = getattr(transformers, f"{kind}Config")(**{**SIZES, **options})
        return Picked(getattr(transformers, f"{kind}Model")(config), TOKENS, (key,))

    return build


def _pooled() -> nn.Module:
    import transformers

    return Pooled(transformers.BertModel(transformers.BertConfig(**SIZES), add_pooling_layer=False))


def _distil() -> nn.Module:
    import transformers

    config = transformers.DistilBertConfig(vocab_size=VOCABULARY, dim=48, n_layers=2, n_heads=4, hidden_dim=96,
                                           max_position_embeddings=64, num_labels=3)  # fmt: skip
    return Picked(transformers.DistilBertForSequenceClassification(config), TOKENS, ("logits",))


def _t5() -> nn.Module:
    import transformers

    config = transformers.T5Config(vocab_size=VOCABULARY, d_model=48, d_kv=12, d_ff=96, num_layers=2, num_heads=4)
    return Picked(transformers.T5EncoderModel(config), TOKENS, ("last_hidden_state",))


def _row(name: str, build: Callable[[], nn.Module], **options: Any) -> Row:
    return Row(name, build, text(VOCABULARY), TOKENS, axes=TEXT_AXES, **options)


ROWS = (
    _row("bert (mean of masked)", _pooled),
    _row("bert (pooler)", _hidden("Bert", "pooler_output")),
    _row("distilbert (classifier)", _distil),
    _row("roberta", _hidden("Roberta", pad_token_id=0)),
    _row("albert", _hidden("Albert", embedding_size=24)),
    _row("electra", _hidden("Electra", embedding_size=24)),
    _row("mpnet", _hidden("MPNet", pad_token_id=0)),
    _row(
        "modernbert",
        _hidden(
            "ModernBert",
            pad_token_id=0,
            cls_token_id=1,
            sep_token_id=2,
            bos_token_id=1,
            eos_token_id=2,
            attn_implementation="sdpa",
            reference_compile=False,
        ),
    ),
    _row("deberta v2", _hidden("DebertaV2", relative_attention=True, position_buckets=16, pos_att_type=["p2c", "c2p"])),
    _row("t5 encoder", _t5),
    _row("torch encoder (padding mask)", Plain),
)
