"""Metadata in files beside an ONNX file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from toolkit.adapt.sources.beside import found_beside


def tensor(name: str, *shape: Any, dtype: str = "float32") -> dict[str, Any]:
    return {"name": name, "shape": list(shape), "dtype": dtype}


IMAGE = {"inputs": [tensor("x", "N", 3, 32, 32)], "outputs": [tensor("y", "N", 3)]}
TAGGER = {"inputs": [tensor("ids", "N", "L", dtype="int64")], "outputs": [tensor("y", "N", "L", 3)]}
SPEECH = {"inputs": [tensor("x", "N", "T", 40)], "outputs": [tensor("y", "N", "S", 4)]}


def write(folder: Path, **files: Any) -> Path:
    """Write files (``_`` is the dot of the name); a value that is not text becomes JSON."""
    for name, value in files.items():
        stem, _, ending = name.rpartition("_")
        text = value if isinstance(value, str) else json.dumps(value)
        (folder / f"{stem}.{ending}").write_text(text, encoding="utf-8")
    return folder / "model.onnx"


def test_names_of_classes(tmp_path: Path) -> None:
    file = write(tmp_path, labels_txt="cat\ndog\nfox\n", classes_txt="a\nb\n")
    found = found_beside(file, IMAGE, {})
    assert (found.notes, found.origins) == ({"class_labels": ["cat", "dog", "fox"]}, {"class_labels": "labels.txt"})
    assert found_beside(file, IMAGE, {"class_labels": '["a", "b", "c"]'}).notes == {}  # the model's own count


def test_image_classifier_of_transformers(tmp_path: Path) -> None:
    config = {"architectures": ["ViTForImageClassification"], "id2label": {"0": "cat", "1": "dog", "2": "fox"}}
    images = {"size": {"height": 32, "width": 32}, "image_mean": [0.5] * 3, "image_std": [0.2] * 3, "resample": 3}
    found = found_beside(write(tmp_path, config_json=config, preprocessor_config_json=images), IMAGE, {})
    assert found.task == "classification"
    assert found.notes["class_labels"] == ["cat", "dog", "fox"]
    assert found.notes["preprocess"] == {
        "resize_shape": [32, 32],
        "crop_shape": [32, 32],
        "mean": [0.5] * 3,
        "std": [0.2] * 3,
        "interpolation": "bicubic",
    }
    assert found_beside(tmp_path / "m.onnx", TAGGER, {}).task == ""  # another model


def test_classifier_of_timm(tmp_path: Path) -> None:
    given = {
        "input_size": [3, 32, 32],
        "crop_pct": 0.8,
        "mean": [0.1] * 3,
        "std": [1.0] * 3,
        "interpolation": "bilinear",
    }
    found = found_beside(write(tmp_path, config_json={"pretrained_cfg": given}), IMAGE, {})
    assert found.notes["preprocess"]["resize_shape"] == 40
    assert found.notes["preprocess"]["interpolation"] == "bilinear"


def test_tagger_of_transformers(tmp_path: Path) -> None:
    config = {
        "architectures": ["BertForTokenClassification"],
        "id2label": {"0": "O", "1": "B-PER", "2": "I-PER"},
        "max_position_embeddings": 64,
        "vocab_size": 90,
        "pad_token_id": 0,
    }
    tokenizer = {"model": {"vocab": {"a": 0}}}
    found = found_beside(write(tmp_path, config_json=config, tokenizer_json=tokenizer), TAGGER, {})
    assert found.task == "token_classification"
    assert found.notes["tokenizer"] == tokenizer
    assert (found.notes["max_length"], found.notes["pad_id"], found.notes["vocabulary_size"]) == (64, 0, 90)


def test_tokens_of_k2(tmp_path: Path) -> None:
    found = found_beside(write(tmp_path, tokens_txt="<blk> 0\na 1\nb 2\n▁ 3\n"), SPEECH, {})
    assert found.notes == {"vocabulary": ["<blk>", "a", "b", "▁"], "speech_recognition": {"blank": 0}}
    assert "features" not in found.notes  # nothing says how they are computed


def test_vocabulary_of_transformers(tmp_path: Path) -> None:
    found = found_beside(write(tmp_path, vocab_json={"a": 1, "<pad>": 0, "|": 3, "b": 2}), SPEECH, {})
    assert found.notes["vocabulary"] == ["<pad>", "a", "b", "|"]
    assert found.notes["speech_recognition"] == {"blank": 0, "delimiter": "|"}


def test_recogniser_of_nemo(tmp_path: Path) -> None:
    text = "preprocessor: {sample_rate: 8000, normalize: per_feature, features: 40, n_fft: 256}\n"
    text += "decoder: {vocabulary: [a, b, c]}\n"
    found = found_beside(write(tmp_path, model_config_yaml=text), SPEECH, {})
    features = found.notes["features"]
    assert (features["kind"], features["rate"], features["window"], features["bands"]) == ("log_mel", 8000, 200, 40)
    assert found.notes["vocabulary"] == ["a", "b", "c"]
    assert found.notes["speech_recognition"] == {"blank": -1, "normalize": "bands"}


def test_metadata_of_sherpa(tmp_path: Path) -> None:
    file = write(tmp_path, tokens_txt="a 0\nb 1\nc 2\n<blk> 3\n")
    texts = {"model_type": "EncDecCTCModelBPE", "normalize_type": "per_feature"}
    found = found_beside(file, SPEECH, texts)
    assert found.notes["features"]["bands"] == 40
    assert found.notes["speech_recognition"] == {"blank": 3, "normalize": "bands"}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config_json", "{"),
        ("config_json", "[]"),
        ("preprocessor_config_json", {"size": {"shortest": 3}}),
        ("preprocessor_config_json", {"size": 32, "resample": 99, "image_mean": [0.5]}),
        ("labels_json", "nothing"),
        ("model_config_yaml", "a: [1"),
    ],
)
def test_damaged_files_are_named(name: str, content: Any, tmp_path: Path) -> None:
    found = found_beside(write(tmp_path, **{name: content}), IMAGE, {})
    assert found.notes == {}
    (line,) = found.unused
    assert "beside model.onnx is not used: " in line
    assert "\n" not in line
