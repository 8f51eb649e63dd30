"""Folders of transformers compute what transformers computes, from its own files of weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine import ConfigError, EngineSpec, ModelError, open_engine

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.torch]

WORDS = 120


def transformers() -> Any:
    """Return the package, imported as the exports do."""
    from utils.export.networks.transformers_detectors import transformers as imported

    return imported()


SMALL: dict[str, dict[str, Any]] = {
    "Bert": {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48},
    "Roberta": {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48},
    "DistilBert": {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48},
    "Electra": {
        "embedding_size": 16, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
        "intermediate_size": 48,
    },
    "Albert": {
        "embedding_size": 16, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4,
        "intermediate_size": 48,
    },
}  # fmt: skip

HEADS = ("ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering")


def saved(folder: Path, kind: str, head: str) -> Any:
    """Write a small model with random weights as transformers does, and a tokenizer; return the model."""
    from utils.export.networks.small_tokenizers import small_tokenizer

    torch.manual_seed(1)
    labels = {} if "Question" in head else {"id2label": {0: "a", 1: "b", 2: "c"}, "label2id": {"a": 0, "b": 1, "c": 2}}
    config = getattr(transformers(), f"{kind}Config")(
        vocab_size=WORDS, max_position_embeddings=40, **SMALL[kind], **labels
    )
    model = getattr(transformers(), f"{kind}{head}")(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_(std=0.3)  # the usual ones are so small that a wrong head would hardly be seen
    model.save_pretrained(folder)
    (folder / "tokenizer.json").write_text(json.dumps(small_tokenizer("bert", ["the cat sat"])), encoding="utf-8")
    return model


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("kind", SMALL)
def test_text_encoders(kind: str, head: str, tmp_path: Path) -> None:
    from utils.export.scripts.text_folder import folder_model

    theirs, ours = saved(tmp_path, kind, head), folder_model(tmp_path)
    ids = torch.randint(5, WORDS, (2, 9), generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(ids)
    mask[1, 6:] = 0
    ids = torch.where(mask > 0, ids, theirs.config.pad_token_id)
    with torch.no_grad():
        wanted = theirs(input_ids=ids, attention_mask=mask)
        found = ours.module(ids, mask)
    names = ("start_logits", "end_logits") if "Question" in head else ("logits",)
    for name, got in zip(names, found if isinstance(found, tuple) else (found,), strict=True):
        known = mask.bool() if got.shape[:2] == mask.shape else slice(None)
        np.testing.assert_allclose(got[known].numpy(), wanted[name][known].numpy(), rtol=1e-3, atol=1e-4)


def test_kinds_of_adapt_are_those_of_the_export() -> None:
    from toolkit.adapt.sources.text_folders import TextFolder
    from utils.export.networks.bert_encoder import KINDS
    from utils.export.scripts.text_folder import HEADS as OWN

    assert tuple(TextFolder.kinds) == KINDS
    assert set(TextFolder.heads) == set(OWN)


def test_other_albert_is_refused(tmp_path: Path) -> None:
    from utils.export.scripts.text_folder import folder_model

    saved(tmp_path, "Albert", HEADS[0])
    config = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    (tmp_path / "config.json").write_text(json.dumps({**config, "num_hidden_groups": 2}), encoding="utf-8")
    with pytest.raises(ModelError, match="num_hidden_groups 2"):
        folder_model(tmp_path)


IMAGES = {"size": {"height": 32, "width": 32}, "image_mean": [0.5] * 3, "image_std": [0.5] * 3, "resample": 2}


def vit(folder: Path) -> Any:
    """Write a small ViT as transformers does; return the model."""
    labels = {"id2label": {0: "cat", 1: "dog"}, "label2id": {"cat": 0, "dog": 1}}
    sizes = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 32}
    config = transformers().ViTConfig(image_size=32, patch_size=8, **sizes, **labels)
    torch.manual_seed(2)
    model = transformers().ViTForImageClassification(config).eval()
    model.save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(json.dumps(IMAGES), encoding="utf-8")
    return model


def test_image_classifier(tmp_path: Path) -> None:
    from utils.export.scripts.image_folder import export_image_folder
    from utils.stored import ModelMetadata

    theirs = vit(tmp_path / "weights")
    assert export_image_folder("", tmp_path, "small", "the tests", ["--forms", "static", "dyn"]) == 0
    x = torch.randn(3, 3, 32, 32)
    with torch.no_grad():
        wanted = theirs(pixel_values=x).logits.numpy()
    with open_engine("onnx", EngineSpec(tmp_path / "small_dyn.onnx")) as engine:
        np.testing.assert_allclose(engine(x.numpy()), wanted, rtol=1e-3, atol=1e-4)
    from engine.onnx import load_model, metadata

    stored = ModelMetadata(metadata(load_model(tmp_path / "small_dyn.onnx")))
    assert stored.labels == ["cat", "dog"]
    assert (stored.image.crop, stored.image.mean) == ((32, 32), (0.5,) * 3)


def test_image_classifier_without_weights_is_random(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from utils.export.scripts.image_folder import export_image_folder

    vit(tmp_path / "weights")
    (tmp_path / "weights" / "model.safetensors").unlink()
    assert export_image_folder("", tmp_path, "small", "the tests", ["--forms", "static"]) == 0
    assert "random weights" in capsys.readouterr().out


def test_image_classifier_without_a_preprocessor(tmp_path: Path) -> None:
    from utils.export.scripts.image_folder import export_image_folder

    vit(tmp_path / "weights")
    (tmp_path / "weights" / "preprocessor_config.json").unlink()
    with pytest.raises(ModelError, match=r"has no preprocessor_config\.json"):
        export_image_folder("", tmp_path, "small", "the tests", [])


def test_config_that_is_no_classifier(tmp_path: Path) -> None:
    from utils.export.scripts.image_folder import export_image_folder

    (tmp_path / "weights").mkdir()
    config = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]}
    (tmp_path / "weights" / "config.json").write_text(json.dumps(config), encoding="utf-8")
    with pytest.raises(ConfigError, match=r"config\.json"):
        export_image_folder("", tmp_path, "small", "the tests", [])
