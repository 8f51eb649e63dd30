"""Sound classifiers: AST of transformers from a folder of ``save_pretrained``, PANNs from a file, or random weights.

AST: Gong et al., "AST: Audio Spectrogram Transformer" (2021). Nothing is downloaded.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from engine import ConfigError, ModelError
from tecoinfer_modelzoo.files import utf8_text
from tecoinfer_modelzoo.json_values import is_number
from utils.export.forms import FORMS
from utils.export.networks.random_weights import RANDOM, seeded
from utils.export.networks.sound import panns
from utils.export.networks.transformers_detectors import plain_attention, pretrained, read_json, transformers
from utils.export.onnx_files import ExportResult
from utils.export.torch_export import export_onnx
from utils.preprocess.audio.features import FilterBank, Settings, settings_to_json
from utils.preprocess.audio.windows import FRAMES

AST = "ast"

ARCHS = (AST, *panns.CHANNELS)
"""Architectures with random weights."""

AST_TYPE = "audio-spectrogram-transformer"
"""Its ``model_type`` in ``config.json``."""

MEAN, STD = -4.2677393, 4.5689974
"""Mean and deviation of AudioSet's features, the defaults of AST's ``preprocessor_config.json``."""

AUDIOSET = 527
"""Classes of AudioSet, of which a recording has several."""


@dataclass(frozen=True)
class SoundModel:
    """A sound classifier for :func:`export_sound_model`.

    Attributes:
        module: features, N x ``frames`` x bands, to logits, N x C. name: start of the file names.
        source, weights: provenance. settings: of the features. frames: of a window.
        labels: class names; ``None``: unknown. note: metadata ``sound_classification``.
    """

    module: torch.nn.Module
    name: str
    source: str
    weights: str
    settings: Settings
    frames: int
    labels: Sequence[str] | None
    note: Mapping[str, Any] = field(default_factory=dict)


class Logits(torch.nn.Module):  # type: ignore[misc]
    """AST of transformers as a function from features to logits."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = plain_attention(model)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Return N x C logits of N x T x bands features."""
        found: torch.Tensor = self.model(input_values=features).logits
        return found


def sound_model(
    weights: str,
    arch: str = AST,
    *,
    labels: Sequence[str] | None = None,
    seconds: float | None = None,
    rate: int | None = None,
    multi_label: bool | None = None,
) -> SoundModel:
    """Return a sound classifier.

    Args:
        weights: a folder with AST, a file with CNN10 or CNN14, or ``random``.
        arch: for random weights, one of :data:`ARCHS`.
        labels: class names; ``None``: those in the folder. seconds: length of a window of PANNs, default: as in the
            published training; AST's is in its folder. rate: as of :func:`.panns.from_file`.
        multi_label: whether a sound may have several classes; ``None``: as the folder says, or for 527 classes.

    Raises ConfigError: a flag is invalid, or the folder has another kind of model; ModelError: weights are missing,
    damaged or unsupported, or there are more or fewer labels than classes; TargetError: transformers is not installed.
    """
    if weights == RANDOM:
        made = _random(arch, labels or ("quiet", "loud"), seconds)
    elif Path(weights).is_dir():
        made = _ast(weights)
    else:
        network, arch, settings = panns.from_file(weights, rate)
        made = _of_panns(network, arch, Path(weights).stem, Path(weights).name, settings, seconds)
    if seconds is not None and isinstance(made.module, Logits):
        raise ConfigError(f"--seconds {seconds:g}: the window of AST is that of its weights; leave it out")
    count = _classes(made.module)
    if labels is not None and len(labels) != count:
        raise ModelError(f"{weights}: has {count} classes, and there are {len(labels)} labels; use the model's own")
    several = made.note.get("multi_label", count == AUDIOSET) if multi_label is None else multi_label
    return replace(made, labels=made.labels if labels is None else labels, note={**made.note, "multi_label": several})


def read_labels(path: Path) -> list[str]:
    """Return class names: a line each, or of a ``.csv`` the column ``display_name`` (AudioSet's own table).

    Raises DataError if the file cannot be read, ConfigError if it has no names.
    """
    text = utf8_text(path, "--labels")
    if path.suffix.lower() == ".csv":
        rows = list(csv.DictReader(io.StringIO(text)))
        found = [(row.get("display_name") or "").strip() for row in rows]
    else:
        found = [line.strip() for line in text.splitlines() if line.strip()]
    if not found or not all(found):
        raise ConfigError(f"--labels {path}: has no class names; write one per line, or a .csv with display_name")
    return found


def export_sound_model(
    model: SoundModel,
    stem: str | Path,
    *,
    batch: int = 1,
    forms: Sequence[str] = FORMS,
    exporter: str | None = None,
) -> list[ExportResult]:
    """Write a model's ONNX files with the input ``features`` and the output ``logits``; only the batch is dynamic.

    ``batch``: of the static file; other arguments and errors: :func:`~utils.export.torch_export.export_onnx`.
    """
    if batch < 1:
        raise ConfigError(f"--batch_size {batch} must be at least 1")
    shape = (batch, model.frames, model.settings.bands)
    return export_onnx(
        model.module,
        torch.randn(shape, generator=torch.Generator().manual_seed(0)),
        stem,
        input_names=["features"],
        output_names=["logits"],
        labels=model.labels,
        sample_rate=model.settings.rate,
        provenance={"source": model.source, "weights": model.weights},
        notes={"features": json.loads(settings_to_json(model.settings)), "sound_classification": dict(model.note)},
        forms=forms,
        exporter=exporter,
    )


def _classes(module: torch.nn.Module) -> int:
    last = module.model.classifier.dense if isinstance(module, Logits) else module.fc_audioset
    return int(last.out_features)


def _of_panns(
    network: panns.Panns, arch: str, name: str, weights: str, settings: Settings, seconds: float | None
) -> SoundModel:
    length = panns.SECONDS if seconds is None else seconds
    frames = 1 + round(length * settings.rate) // settings.grid.hop
    if not 32 <= frames <= 1 << 16:
        raise ConfigError(f"--seconds {length:g}: is {frames} frames; use a length of 32 to {1 << 16} frames")
    note = {"fill": "after", "padding": panns.SILENCE}
    return SoundModel(network, name, f"PANNs {arch}", weights, settings, frames, None, note)


def _ast(folder: str) -> SoundModel:
    """Return AST from a folder, with the features of its ``preprocessor_config.json``."""
    model = pretrained(folder, "AutoModelForAudioClassification")
    config = model.config
    if config.model_type != AST_TYPE:
        raise ConfigError(f"--weights {folder}: model_type {config.model_type}; supported is {AST_TYPE}")
    path = Path(folder, "preprocessor_config.json")
    found = read_json(path)
    for key, own in (("max_length", config.max_length), ("num_mel_bins", config.num_mel_bins)):
        if found.get(key, own) != own:
            raise ModelError(f"{path}: {key} {found[key]!r}, but config.json has {own}; correct one of them")
    rate, mean, std = found.get("sampling_rate", 16000), found.get("mean", MEAN), found.get("std", STD)
    if type(rate) is not int or not is_number(mean) or not is_number(std) or std <= 0:
        raise ModelError(f"{path}: sampling_rate {rate!r}, mean {mean!r}, std {std!r} are not numbers; correct it")
    note: dict[str, Any] = {"fill": FRAMES, "padding": 0.0}
    if found.get("do_normalize", True):
        note |= {"mean": mean, "std": 2 * std}
    if config.problem_type is not None:
        note["multi_label"] = config.problem_type == "multi_label_classification"
    names = config.id2label
    return SoundModel(
        Logits(model.eval()),
        Path(folder).resolve().name,
        f"transformers {config.model_type}",
        Path(folder).name,
        ast_settings(rate, config.num_mel_bins),
        config.max_length,
        [str(names[number]) for number in range(len(names))],
        note,
    )


def ast_settings(rate: int, bands: int) -> FilterBank:
    """Return the features of AST's extractor: torchaudio's ``kaldi.fbank`` of samples in -1..1."""
    hop, window = rate // 100, rate // 40
    return FilterBank(rate, window, hop, bands, shape="hanning", full_scale=1.0, empty=True)


def _random(arch: str, labels: Sequence[str], seconds: float | None) -> SoundModel:
    """Return a network with random weights; AST is small, and takes 1.3 s."""
    if arch != AST:
        network = panns.random_network(arch, len(labels))
        return _of_panns(network, arch, arch, RANDOM, panns.settings_at(max(panns.RATES)), seconds)
    found = transformers()
    config = found.ASTConfig(
        hidden_size=48, num_hidden_layers=2, num_attention_heads=3, intermediate_size=96, max_length=128,
        id2label=dict(enumerate(labels)), label2id={name: number for number, name in enumerate(labels)},
    )  # fmt: skip
    module = seeded(lambda: Logits(found.ASTForAudioClassification(config)))
    with torch.no_grad():  # with the initial weights all sounds are nearly equal
        module.model.audio_spectrogram_transformer.embeddings.patch_embeddings.projection.weight.mul_(10)
    note = {"fill": FRAMES, "padding": 0.0, "mean": MEAN, "std": 2 * STD}
    settings = ast_settings(16000, config.num_mel_bins)
    return SoundModel(
        module, AST, f"transformers {AST_TYPE}", RANDOM, settings, config.max_length, list(labels), note
    )  # fmt: skip
