"""Metadata of models: the keys of every domain with values of wrong types, sizes and lengths."""

from __future__ import annotations

import json
import random
from functools import cache
from pathlib import Path
from typing import Any

from tests.fuzz.case import ROOT, Case, Outcome
from tests.fuzz.makers.values_of import ODD, mutated_json

WARM = (
    *("numpy", "onnx", "onnxruntime", "PIL.Image", "engine", "engine.sdaa.engine", "utils.pipeline.cli"),
    *("utils.tasks.classification.task", "utils.tasks.detection.task", "utils.tasks.segmentation.task"),
)

COMMON = ("class_labels", "preprocess", "provenance", "names", "vocabulary", "sample_rate", "task", "stride", "imgsz")
MODELS: dict[str, tuple[str, ...]] = {
    "classification/digits/digits_dyn": ("class_ids",),
    "detection/digit_detector/digit_detector_dyn": ("detection",),
    "gnn/digits_gcn/digits_gcn_dyn": ("nodes", "graph"),
    "nlp/bert_qa/small_bert_qa_dyn": ("question_answering", "tokenizer", "max_length", "pad_id", "vocabulary_size"),
    "nlp/language_id/language_id_dyn": ("text_classification", "tokenizer", "max_length", "pad_id", "vocabulary_size"),
    "nlp/tiny_gpt/tiny_gpt_dyn": ("generation", "tokenizer", "max_length", "vocabulary_size"),
    "ocr/digit_crnn/digit_crnn_dyn": ("text_recognition", "character"),
    "recommendation/deepfm_synthetic/deepfm_synthetic_dyn": ("features", "ctr_prediction"),
    "reinforcement/ppo_cartpole/ppo_cartpole_dyn": ("policy",),
    "segmentation/digit_unet/digit_unet_dyn": ("segmentation",),
    "speech/prompts_ctc/prompts_ctc_dyn": ("features", "speech_recognition"),
    "speech/silero_vad/silero_vad_dyn": ("voice_activity", "features"),
}
"""Metadata keys of the domain, in addition to :data:`COMMON`, by committed model."""

SEEDS: dict[str, Any] = {
    "class_labels": ["0", "1", "2"],
    "class_ids": ["a", "b"],
    "preprocess": {"crop_shape": 32, "mean": [0.5] * 3, "resize_shape": [32, 40], "std": 1, "interpolation": "bicubic"},
    "provenance": {"weights": "random", "source": "nowhere"},
    "sample_rate": 8000,
    "pad_id": 0,
    "detection": {"head": "yolo", "layout": "v8", "boxes": "xyxy"},
    "text_classification": {"problem": "regression", "range": [0, 5], "pad_id": 0},
    "segmentation": {"canvas": 160, "multiple": 32, "labels": "index"},
    "ctr_prediction": {"output": "logits"},
    "speech_recognition": {"blank": 0, "margin": 63, "padding": -11.5, "reach": 63, "stride": 3},
    "graph": {"targets": ["a"], "task": "regression"},
    "character": ["a", "b"],
}
"""Default value for a missing key."""


@cache
def _model(name: str) -> Any:
    import onnx

    return onnx.load(str(ROOT / "example" / f"{name}.onnx"))


def make(rng: random.Random, folder: Path, number: int) -> Case:
    name = rng.choice(list(MODELS))
    model = type(_model(name))()
    model.CopyFrom(_model(name))
    stored = {entry.key: entry.value for entry in model.metadata_props}
    keys = [key for key in (*MODELS[name], *stored) if key != "max_relative_error"]
    done, harmless = [], True
    for key in {rng.choice(keys if rng.random() < 0.7 else COMMON) for _ in range(rng.randint(1, 2))}:
        stored[key], what = _changed(rng, key, stored.get(key))
        done.append(f"{key}: {what}")
        harmless = False
    if rng.random() < 0.1:
        stored = {key: value for key, value in stored.items() if key not in keys} if rng.random() < 0.5 else {}
        done.append("most keys removed")
    del model.metadata_props[:]
    for key, value in stored.items():
        model.metadata_props.add(key=key, value=value)
    content = model.SerializeToString()
    if rng.random() < 0.03:
        content, harmless = content.replace(b"provenance", b"provenanc\xff"), False
        done.append("a key that is not UTF-8")
    (folder / "m.onnx").write_bytes(content)
    script = ROOT / "example" / Path(name).parent / "example_single_batch.py"
    words = (str(script), "--ckpt", "m.onnx", "--target", rng.choice(("onnx", "onnx", "onnx", "cpu", "sdaa")))

    def judge(outcome: Outcome) -> str | None:
        return "refused without cause" if harmless and outcome.code else None

    return Case(words, f"{name}: {'; '.join(done)}", judge)


def _changed(rng: random.Random, key: str, text: str | None) -> tuple[str, str]:
    """Return another value of a key, and the change."""
    if key == "names" and rng.random() < 0.7:
        names = {0: "cat", 1: "dog", rng.choice((2, 3, -1, "x", None, 1.5, True)): rng.choice(("a", 1, None, []))}
        return rng.choice((repr(names), "{0: " * 3000, "[" * 200 + "]" * 200, "{[]: 1}", "{0: b'x'}")), "names"
    if rng.random() < 0.15:
        value = rng.choice(
            ("", "\0", "{", "NaN", "-Infinity", "[" * 100_000, "{" * 200, "0" * 5000, "\ufeff{}", "1e999")
        )
        return value, ascii(value)[:30]
    if rng.random() < 0.2:
        value = json.dumps(rng.choice([odd for odd in ODD if not isinstance(odd, str)]))
        return value, value[:40]
    try:
        whole = SEEDS.get(key, {}) if text is None else json.loads(text)
    except ValueError:
        whole = text
    changed, what = mutated_json(whole, rng)
    return changed, what[:200]
