"""CLIP and SigLIP from folders of transformers: the task's probabilities are transformers' own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from engine import ConfigError, ModelError
from utils.export.networks.image_text_models import KINDS, export_pair, image_text_pair, preprocess_of
from utils.export.networks.random_weights import RANDOM
from utils.export.networks.small_tokenizers import small_tokenizer
from utils.export.networks.text_models import tokens_of
from utils.export.networks.torchvision_models import import_torchvision
from utils.pipeline import answers
from utils.stored import ModelMetadata
from utils.tasks.image_text.task import ImageText

pytestmark = pytest.mark.torch

CLASSES, TEMPLATE = ["red cat", "small dog on a mat", "cup"], "a photo of the {}."
SIDE, LENGTH = 32, 14
TOKENIZER = small_tokenizer("bert", [*CLASSES, TEMPLATE])
SIZES: dict[str, Any] = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2,
}  # fmt: skip


def saved(kind: str, folder: Path) -> Any:
    """Return a pair of transformers with random weights, saved in a folder as users have them."""
    pytest.importorskip("transformers")
    import_torchvision()
    import transformers

    # the end token of CLIP's text, and the padding of SigLIP's, which is not the usual [PAD]
    special = {"bos_token_id": 2, "eos_token_id": 3, "pad_token_id": 0 if kind == "clip" else 1}
    text = {**SIZES, **special, "vocab_size": tokens_of(TOKENIZER, "test"), "max_position_embeddings": LENGTH}
    vision = {**SIZES, "image_size": SIDE, "patch_size": 8}
    name = {"clip": "CLIP", "siglip": "Siglip"}[kind]
    torch.manual_seed(0)
    model = getattr(transformers, f"{name}Model")(
        getattr(transformers, f"{name}Config")(text_config=text, vision_config=vision)
    ).eval()
    with torch.no_grad():
        for key, weight in model.named_parameters():
            if weight.ndim > 1:
                weight.normal_(std=0.2)
            elif key == "logit_bias":
                weight.fill_(-0.7)
    model.save_pretrained(folder)
    size = {"shortest_edge": SIDE} if kind == "clip" else {"height": SIDE, "width": SIDE}
    getattr(transformers, f"{name}ImageProcessor")(size=size, crop_size=SIDE).save_pretrained(folder)
    (folder / "tokenizer.json").write_text(json.dumps(TOKENIZER), encoding="utf-8")
    return model


def images(folder: Path, width: int) -> list[Path]:
    """Write images that are as high as the input, so that none is resized: filters differ between libraries."""
    rng = np.random.default_rng(3)
    folder.mkdir()
    for place in range(3):
        Image.fromarray(rng.integers(0, 256, (SIDE, width, 3)).astype(np.uint8)).save(folder / f"{place}.png")
    return sorted(folder.iterdir())


def golden(kind: str, model: Any, folder: Path, paths: list[Path]) -> Any:
    """Return the probabilities of the classes by transformers alone."""
    import transformers

    tokens = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "tokenizer.json"), pad_token="[PAD]" if kind == "clip" else "[UNK]"
    )  # fmt: skip
    texts = [TEMPLATE.replace("{}", name) for name in CLASSES]
    said = tokens(texts, padding="max_length", max_length=LENGTH, return_tensors="pt")
    given = {"input_ids": said["input_ids"]} | ({"attention_mask": said["attention_mask"]} if kind == "clip" else {})
    read = transformers.AutoImageProcessor.from_pretrained(folder)
    pixels = read(images=[Image.open(path) for path in paths], return_tensors="pt")["pixel_values"]
    with torch.no_grad():
        scores = model(pixel_values=pixels, **given).logits_per_image
    return (scores.softmax(dim=1) if kind == "clip" else scores.sigmoid()).numpy()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the trace has values")  # the size of the images, which is fixed
@pytest.mark.parametrize("kind", KINDS)
def test_a_folder_through_the_task_equals_transformers(kind: str, tmp_path: Path) -> None:
    model = saved(kind, tmp_path)
    pair = image_text_pair(str(tmp_path), note={"template": [TEMPLATE]})
    results = export_pair(pair, tmp_path / "m", forms=["dyn"], exporter="torchscript")
    assert [one.error for one in results] == [None, None]
    paths = images(tmp_path / "images", SIDE + 16 if kind == "clip" else SIDE)
    wanted = golden(kind, model, tmp_path, paths)
    assert wanted.std(axis=0).max() > 0.01, "answers that differ by image"
    ckpt = {part: tmp_path / f"m_{part}_dyn.onnx" for part in ImageText.models}
    for target, dtype, most in (("onnx", "float32", 1e-3), ("sdaa", "float32", 1e-3), ("sdaa", "float16", 2e-2)):
        words = ["--target", target, "--dtype", dtype, "--topk", "3", "--classes", *CLASSES]
        where: dict[str, Any] = {"ckpt": ckpt, "data_path": tmp_path / "images", "batch_size": 4}
        report = tmp_path / "r.json"
        assert answers.main(None, ImageText, "multi", argv=[*words, "--json", str(report)], **where) == 0
        found = [
            {one["label"]: one["score"] for one in row["answer"]} for row in json.loads(report.read_text())["answers"]
        ]
        np.testing.assert_allclose([[row[name] for name in CLASSES] for row in found], wanted, atol=most)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_random_weights_and_the_default_exporter(kind: str, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    pair = image_text_pair(RANDOM, kind, texts=CLASSES)
    assert (pair.name, pair.weights) == (kind, RANDOM)
    results = export_pair(pair, tmp_path / "m", batch=2)
    assert [one.error for one in results] == [None] * 6


@pytest.mark.slow
def test_folders_that_are_refused(tmp_path: Path) -> None:
    saved("clip", tmp_path)
    (tmp_path / "preprocessor_config.json").write_text('{"size": 64, "crop_size": 64}')
    with pytest.raises(ModelError, match="takes 32 x 32"):
        image_text_pair(str(tmp_path))
    large = {"model": {**TOKENIZER["model"], "vocab": {**TOKENIZER["model"]["vocab"], "more": 5000}}}
    (tmp_path / "tokenizer.json").write_text(json.dumps(large))
    with pytest.raises(ModelError, match="5001 tokens"):
        image_text_pair(str(tmp_path))
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(ModelError, match="no such tokenizer"):
        image_text_pair(str(tmp_path))
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert", "architectures": ["BertModel"]}))
    with pytest.raises(ConfigError, match="model_type bert; use clip or siglip"):
        image_text_pair(str(tmp_path))
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").write_bytes(b"damaged")
    with pytest.raises(ModelError, match="cannot be loaded") as caught:
        image_text_pair(str(tmp_path))
    assert "\n" not in str(caught.value)
    with pytest.raises(ConfigError, match="not a folder"):
        image_text_pair(str(tmp_path / "none"))


@pytest.mark.parametrize(
    ("found", "kind", "resize"),
    [
        ({}, "clip", 224),
        ({}, "siglip", [224, 224]),
        ({"size": 256, "crop_size": 224}, "clip", 256),
        ({"size": {"shortest_edge": 224}, "crop_size": {"height": 224, "width": 224}}, "clip", 224),
        ({"size": {"height": 224, "width": 224}, "resample": 2}, "siglip", [224, 224]),
    ],
)
def test_preprocessing_of_a_folder(found: dict[str, Any], kind: str, resize: Any) -> None:
    made = preprocess_of(found, 224, kind, "folder")
    assert (made["resize_shape"], made["crop_shape"]) == (resize, [224, 224])
    assert made["interpolation"] == ("bilinear" if found.get("resample") == 2 else "bicubic")
    assert ModelMetadata({"preprocess": json.dumps(made)}).image.crop == (224, 224)


@pytest.mark.parametrize(
    "found",
    [
        {"size": {"height": 224}},
        {"size": {"shortest_edge": "224"}},
        {"size": 200, "crop_size": 224},
        {"crop_size": 256},
        {"size": {"height": 384, "width": 384}},
        {"resample": 9},
    ],
)
def test_preprocessing_that_does_not_fit(found: dict[str, Any]) -> None:
    with pytest.raises(ModelError, match=r"folder: preprocessor_config\.json"):
        preprocess_of(found, 224, "clip", "folder")
