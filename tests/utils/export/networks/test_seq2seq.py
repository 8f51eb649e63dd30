"""Marian and T5 from transformers' weights: the same logits, and the same greedy translations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from engine import ModelError
from utils.export.networks.seq2seq import form_of
from utils.export.networks.small_tokenizers import small_tokenizer
from utils.export.networks.torchvision_models import import_torchvision
from utils.export.networks.translation_models import translation_model

pytestmark = pytest.mark.torch

TOKENIZER = small_tokenizer("roberta", ["the cat sat on the mat"])
VOCABULARY = 1 + max(TOKENIZER["model"]["vocab"].values())

MARIAN: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "pad_token_id": 1,
    "max_position_embeddings": 40,
    "scale_embedding": True,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
    "forced_eos_token_id": None,
    "activation_function": "swish",
}
T5: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "d_model": 32,
    "d_kv": 12,
    "d_ff": 48,
    "num_layers": 2,
    "num_heads": 4,
    "pad_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
}
KINDS = {
    "marian": ("MarianMTModel", "MarianConfig", MARIAN),
    "t5": ("T5ForConditionalGeneration", "T5Config", T5),
    "t5 1.1": (
        "T5ForConditionalGeneration",
        "T5Config",
        {**T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_logits_and_translations_match_transformers(kind: str, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    import_torchvision()
    import transformers

    name, config, sizes = KINDS[kind]
    torch.manual_seed(0)
    golden = getattr(transformers, name)(getattr(transformers, config)(**sizes)).eval()
    with torch.no_grad():
        for key, weight in golden.named_parameters():
            if weight.ndim > 1 and "embed_positions" not in key:
                weight.normal_(std=0.4)
    golden.save_pretrained(tmp_path)
    (tmp_path / "tokenizer.json").write_text(json.dumps(TOKENIZER), encoding="utf-8")
    found = translation_model(tmp_path)
    ids = torch.randint(3, VOCABULARY, (2, 9))
    mask = torch.ones_like(ids)
    mask[1, 6:], ids[1, 6:] = 0, 1
    target = torch.randint(3, VOCABULARY, (2, 5))
    with torch.no_grad():
        own = found.module(ids, mask, target)
        wanted = golden(input_ids=ids, attention_mask=mask, decoder_input_ids=target).logits
    assert torch.allclose(own, wanted, atol=2e-4)
    assert found.suppress == ((1,) if kind == "marian" else ())


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"model_type": "bart"}, "'bart'"),
        ({**MARIAN, "model_type": "marian", "d_model": 33}, "multiple of 4 heads"),
        ({**MARIAN, "model_type": "marian", "decoder_vocab_size": 7}, "another vocabulary"),
        ({**MARIAN, "model_type": "marian", "decoder_ffn_dim": 7}, "feed-forward"),
        ({**T5, "model_type": "t5", "num_heads": "4"}, "num_heads '4'"),
        ({**T5, "model_type": "t5", "feed_forward_proj": "tanh"}, "'tanh'"),
    ],
)
def test_unsupported_configurations(config: dict[str, Any], why: str) -> None:
    with pytest.raises(ModelError, match=why):
        form_of(config, "config.json")


def test_folders_without_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"config\.json"):
        translation_model(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({**MARIAN, "model_type": "marian"}))
    with pytest.raises(ModelError, match="no weights"):
        translation_model(tmp_path)
