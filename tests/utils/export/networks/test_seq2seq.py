"""Marian and T5 from folders of transformers: the same logits, and through the task the same translations."""

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
from utils.export.networks.translation_models import export_translation_model, translation_model
from utils.pipeline import answers
from utils.preprocess.text.tokens import Tokens
from utils.tasks.translation.task import Translation

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


def saved(kind: str, folder: Path, std: float) -> Any:
    """Return a model of transformers with random weights, saved in a folder with a tokenizer."""
    pytest.importorskip("transformers")
    import_torchvision()
    import transformers

    name, config, sizes = KINDS[kind]
    torch.manual_seed(0)
    golden = getattr(transformers, name)(getattr(transformers, config)(**sizes)).eval()
    with torch.no_grad():
        for key, weight in golden.named_parameters():
            if weight.ndim > 1 and "embed_positions" not in key:
                weight.normal_(std=std)
    golden.save_pretrained(folder)
    (folder / "tokenizer.json").write_text(json.dumps(TOKENIZER), encoding="utf-8")
    return golden


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_logits_match_transformers(kind: str, tmp_path: Path) -> None:
    golden = saved(kind, tmp_path, 0.4)
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


SOURCES = ["the cat sat on the mat", "a dog", "hello", "the dog sat on a cat and a mat"]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "std", "end"), [("marian", 0.15, 3.0), ("t5", 0.4, 2.0)])
def test_translations_match_transformers(kind: str, std: float, end: float, tmp_path: Path) -> None:
    """Greedy and with beams, of several widths and penalties, and for a batch of sources of different lengths."""
    golden = saved(kind, tmp_path, std)
    with torch.no_grad():  # so that texts end at different lengths
        golden.get_output_embeddings().weight[2] *= end
    golden.save_pretrained(tmp_path)
    model = translation_model(tmp_path)
    results = export_translation_model(model, tmp_path / "m", source="a test", forms=["dyn"], exporter="torchscript")
    assert [one.error for one in results] == [None, None]
    (tmp_path / "texts.txt").write_text("\n".join(SOURCES) + "\n")
    tokens = Tokens(json.dumps(TOKENIZER), "test")
    files = {part: tmp_path / f"m_{part}_dyn.onnx" for part in ("encoder", "decoder")}
    encoded = [torch.from_numpy(one.ids) for one in tokens.encode(SOURCES)]
    ids = torch.nn.utils.rnn.pad_sequence(encoded, batch_first=True, padding_value=1)
    mask = torch.arange(ids.shape[1]) < torch.tensor([[len(one)] for one in encoded])
    never = {"bad_words_ids": [[1]]} if kind == "marian" else {}
    seen = set()
    for target, width, penalty in (
        ("onnx", 1, None), ("onnx", 2, None), ("onnx", 4, 0.3), ("onnx", 4, -1.0), ("onnx", 4, 2.0), ("sdaa", 3, 1.0),
    ):  # fmt: skip
        how = {"num_beams": width, "max_new_tokens": 12, "do_sample": False, "early_stopping": False, **never}
        how |= {} if penalty is None else {"length_penalty": penalty}
        with torch.no_grad():
            found = golden.generate(input_ids=ids, attention_mask=mask.long(), **how)
        wanted = [tokens.decode(row[row > 2]).strip() for row in found]
        flags = ["--beam_width", str(width), *([] if penalty is None else ["--length_penalty", str(penalty)])]
        words = ["--target", target, "--dtype", "float32", "--max_new_tokens", "12", "--lengths", "32", *flags]
        where: dict[str, Any] = {"ckpt": files, "data_path": tmp_path / "texts.txt", "batch_size": 4}
        code = answers.main(
            None, Translation, "multi", argv=[*words, "--json", str(tmp_path / "r.json")], **where
        )  # fmt: skip
        own = [one["answer"] for one in json.loads((tmp_path / "r.json").read_text())["answers"]]
        assert code == 0
        assert [one["text"] for one in own] == wanted, (target, width, penalty)
        seen |= {one["why"] for one in own}
    assert seen == {"stop", "limit"}


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
