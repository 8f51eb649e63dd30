"""Export of text models from a folder written by transformers' ``save_pretrained``, or with random weights.

The folder has ``config.json``, the weights (``model.safetensors`` or ``pytorch_model.bin``) and ``tokenizer.json``.
Nothing is downloaded, and transformers is not needed. The tokenizer, the padding id, the maximum length and the
vocabulary size are stored in the files.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from engine import ConfigError, ModelError
from utils.export.forms import FORMS, STATIC
from utils.export.networks.bert_encoder import Sizes, read_config, sizes_of
from utils.export.networks.bert_heads import Classified, Headed, Hidden, TokenClassified
from utils.export.networks.random_weights import RANDOM
from utils.export.onnx_files import ExportResult
from utils.export.torch_export import export_onnx
from utils.export.weight_files import load_state, read_state

WEIGHTS = ("model.safetensors", "pytorch_model.bin")
"""Weights files of a folder; the first existing one is read."""

UNUSED = (
    *("cls.", "lm_head.", "pooler.", "qa_outputs.", "classifier.", "base.embeddings.position_ids"),
    *("pre_classifier.", "vocab_", "discriminator_predictions.", "generator_", "predictions.", "sop_classifier."),
    "base.embeddings.token_type_ids",
)
"""Prefixes of weights to skip if the model lacks them: other heads, and a table of positions."""

_PREFIX = re.compile(
    r"(bert|roberta|distilbert|electra|albert)\.|(?=(embeddings|embeddings_project|encoder|pooler|transformer)\.)"
)
"""Prefix of the encoder's weights: its kind, or empty if it was saved alone."""

_RENAMED = (
    (r"^base\.transformer\.layer\.", "base.encoder.layer."),
    (r"\.attention\.q_lin\.", ".attention.self.query."),
    (r"\.attention\.k_lin\.", ".attention.self.key."),
    (r"\.attention\.v_lin\.", ".attention.self.value."),
    (r"\.attention\.out_lin\.", ".attention.output.dense."),
    (r"\.sa_layer_norm\.", ".attention.output.LayerNorm."),
    (r"\.ffn\.lin1\.", ".intermediate.dense."),
    (r"\.ffn\.lin2\.|\.ffn_output\.", ".output.dense."),
    (r"\.output_layer_norm\.|\.full_layer_layer_norm\.", ".output.LayerNorm."),
    (r"^base\.encoder\.embedding_hidden_mapping_in\.", "base.embeddings_project."),
    (r"^base\.encoder\.albert_layer_groups\.0\.albert_layers\.0\.", "base.encoder.layer.0."),
    (r"\.attention\.(query|key|value)\.", r".attention.self.\1."),
    (r"\.attention\.(dense|LayerNorm)\.", r".attention.output.\1."),
    (r"\.ffn\.(weight|bias)$", r".intermediate.dense.\1"),
    (r"^base\.pooler\.", "pooler."),
    (r"^pooler\.(weight|bias)$", r"pooler.dense.\1"),
)
"""Patterns of names in DistilBERT and ALBERT, and those in BERT, which :mod:`bert_encoder` has."""


@dataclass(frozen=True)
class TextModel:
    """A text model for :func:`export_text_model`.

    Attributes:
        module: encoder and head. sizes: from ``config.json``. tokenizer: content of ``tokenizer.json``.
        weights: name of the weights, for errors and metadata.
        labels: class names, of a classifier. max_length: maximum tokens of a text.
    """

    module: Headed
    sizes: Sizes
    tokenizer: Mapping[str, Any]
    weights: str
    labels: Sequence[str] | None = None
    max_length: int = 512


def encoder_model(
    folder: str | Path,
    make: Callable[[Sizes], Headed] | None = None,
    *,
    tokenizer: str | Path | None = None,
    max_length: int | None = None,
    labels: Sequence[str] | None = None,
    read: Callable[[Mapping[str, Any], str], Sizes] = sizes_of,
) -> TextModel:
    """Return a model with the weights in a folder.

    Args:
        folder: with ``config.json``, the weights, and ``tokenizer.json`` unless ``tokenizer`` is given.
        make: returns the module for its sizes: ``Hidden`` (``None``), ``Embedded`` (``partial(Embedded,
            pooling="cls")``) or ``Spanned`` of :mod:`~utils.export.networks.bert_heads`.
        max_length: maximum tokens of a text; ``None``: the model's positions.
        read: returns the sizes in ``config.json`` (and its name for errors).

    Raises ConfigError: invalid ``max_length``; ModelError: a file is missing or damaged, the weights do not match, or
    the tokenizer has more tokens.
    """
    place = Path(folder)
    sizes = read(_config(place), str(place / "config.json"))
    module = (make or Hidden)(sizes)
    load_named(module, _weights(place))
    description = read_tokenizer(Path(tokenizer) if tokenizer else place / "tokenizer.json", sizes)
    return TextModel(module.eval(), sizes, description, place.resolve().name, labels, _length(max_length, sizes))


def classifier_model(
    folder: str | Path,
    *,
    tokenizer: str | Path | None = None,
    max_length: int | None = None,
    pooling: str | None = None,
) -> TextModel:
    """Return a classifier with the weights in a folder and the classes of ``config.json`` (``id2label``).

    ``pooling``: one of :data:`.POOLINGS` for a classifier of the pooled vector; ``None`` for the architecture's
    head. Other arguments and errors: :func:`encoder_model`.
    """
    labels = labels_of(_config(Path(folder)), Path(folder, "config.json"))
    make = partial(Classified, classes=len(labels), pooling=pooling)
    return encoder_model(folder, make, tokenizer=tokenizer, max_length=max_length, labels=labels)


def tagger_model(
    folder: str | Path, *, tokenizer: str | Path | None = None, max_length: int | None = None
) -> TextModel:
    """Return a token classifier with the weights in a folder and the tags of ``config.json`` (``id2label``).

    Arguments and errors: :func:`encoder_model`.
    """
    labels = labels_of(_config(Path(folder)), Path(folder, "config.json"))
    make = partial(TokenClassified, classes=len(labels))
    return encoder_model(folder, make, tokenizer=tokenizer, max_length=max_length, labels=labels)


def random_model(
    sizes: Sizes,
    make: Callable[[Sizes], Headed],
    tokenizer: str | Path | Mapping[str, Any],
    *,
    labels: Sequence[str] | None = None,
    max_length: int | None = None,
) -> TextModel:
    """Return a model with seeded random weights, distributed as BERT's initial ones, for functional and speed checks.

    ``tokenizer``: a ``tokenizer.json``, or its content. Other arguments and errors: :func:`encoder_model`.
    """
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        module = make(sizes)
        for name, weight in module.named_parameters():
            if weight.ndim > 1:
                weight.normal_(std=_SPREAD)
            elif name.endswith("bias"):
                weight.zero_()
    read = fitting(tokenizer, "the tokenizer", sizes) if isinstance(tokenizer, Mapping) else None
    description = read or read_tokenizer(Path(str(tokenizer)), sizes)
    return TextModel(module.eval(), sizes, description, RANDOM, labels, _length(max_length, sizes))


_SPREAD = 0.02
"""Standard deviation of BERT's weights before training (Devlin et al., 2019, the published code)."""


def export_text_model(
    model: TextModel,
    stem: str | Path,
    *,
    source: str,
    length: int = 16,
    batch: int = 1,
    forms: Sequence[str] = FORMS,
    notes: Mapping[str, Any] | None = None,
    exporter: str | None = None,
) -> list[ExportResult]:
    """Write a model's ONNX files with inputs ``input_ids``, ``attention_mask`` and, with segments, ``token_type_ids``.

    All are N x L int64, dynamic in the dynamic files. The outputs are those of the head (:attr:`.outputs`).

    Args:
        source: provenance of the model. length, batch: of the static file; ConfigError if invalid.
        stem, forms, notes, exporter: as of :func:`~utils.export.torch_export.export_onnx`, with its errors.
    """
    if not 1 <= length <= model.max_length or batch < 1:
        raise ConfigError(
            f"{batch} texts of {length} tokens are invalid: use at least 1, and at most {model.max_length} tokens"
        )
    stored = {
        "tokenizer": model.tokenizer,
        "max_length": model.max_length,
        "pad_id": model.sizes.pad,
        "vocabulary_size": model.sizes.vocabulary,
    }
    inputs = example_inputs(model, batch, length)
    # a dynamic length is also checked at twice the length, for which there may be no positions
    axes = {0: "batch"} if tuple(forms) == (STATIC,) else {0: "batch", 1: "length"}
    return export_onnx(
        model.module,
        inputs,
        stem,
        input_names=list(inputs),
        output_names=list(model.module.outputs),
        dynamic=dict.fromkeys(inputs, axes),
        labels=model.labels,
        provenance={"source": source, "weights": model.weights},
        notes=stored | dict(notes or {}),
        forms=forms,
        exporter=exporter,
    )


def example_inputs(model: TextModel, batch: int, length: int) -> dict[str, torch.Tensor]:
    """Return example inputs by name: random tokens, the last text padded if the length allows it."""
    chance = torch.Generator().manual_seed(0)
    ids = torch.randint(0, model.sizes.vocabulary, (batch, length), generator=chance)
    ids = torch.where(ids == model.sizes.pad, (model.sizes.pad + 1) % model.sizes.vocabulary, ids)
    mask = torch.ones_like(ids)
    mask[-1, max(1, length * 3 // 4) :] = 0
    found = {"input_ids": torch.where(mask > 0, ids, model.sizes.pad), "attention_mask": mask}
    if model.sizes.types > 1:
        found["token_type_ids"] = (torch.arange(length) >= length // 2).to(torch.int64) * mask
    return found


def load_named(module: Headed, path: Path, *, head: bool = True) -> None:
    """Load a file of weights with transformers' names; ``head=False`` does not load the head.

    Raises ModelError if the file is missing or damaged, or a weight is missing or does not match.
    """
    own = module.state_dict()
    named = {_own_name(key): value for key, value in read_state(path).items()}
    state = {key: value for key, value in named.items() if key in own or not key.startswith(UNUSED)}
    if not head:
        state |= {key: value for key, value in own.items() if not key.startswith("base.")}
    missing = [key for key in own if key not in state and not key.startswith("base.")]
    if missing and any(key.startswith("base.") for key in state):
        fix = "use weights with this head"
        raise ModelError(f"{path}: has the encoder, but not the head's {', '.join(missing)}; {fix}")
    load_state(module, state, str(path))


def _own_name(key: str) -> str:
    """Return the name in :class:`Headed` for transformers' name of a weight."""
    key = key.removeprefix("module.")
    key = re.sub(r"LayerNorm\.gamma$", "LayerNorm.weight", re.sub(r"LayerNorm\.beta$", "LayerNorm.bias", key))
    if not _PREFIX.match(key):
        return key
    key = _PREFIX.sub("base.", key, count=1)
    for pattern, name in _RENAMED:
        key = re.sub(pattern, name, key)
    return key


def read_tokenizer(path: Path, sizes: Sizes | None) -> dict[str, Any]:
    """Return the content of a ``tokenizer.json``; raise ModelError if it is invalid or exceeds ``sizes``."""
    file = path / "tokenizer.json" if path.is_dir() else path
    if not file.is_file():
        raise ModelError(f"{file}: no such tokenizer; save the model's tokenizer.json there, or pass --tokenizer FILE")
    description = read_config(file)
    return description if sizes is None else fitting(description, str(file), sizes)


def fitting(description: Mapping[str, Any], origin: str, sizes: Sizes) -> dict[str, Any]:
    """Return a tokenizer's description; raise ModelError if it has more tokens than the model."""
    tokens = tokens_of(description, origin)
    if tokens > sizes.vocabulary:
        raise ModelError(f"{origin}: has {tokens} tokens, the model has {sizes.vocabulary}; use the model's tokenizer")
    return dict(description)


def tokens_of(description: Mapping[str, Any], origin: str) -> int:
    """Return the largest token id plus 1; raise ModelError without a vocabulary."""
    inner = description.get("model")
    vocabulary = inner.get("vocab") if isinstance(inner, Mapping) else None
    if not isinstance(vocabulary, (Mapping, list)) or not vocabulary:
        raise ModelError(f"{origin}: does not contain a vocabulary; use a tokenizer.json of the tokenizers library")
    numbers = list(vocabulary.values()) if isinstance(vocabulary, Mapping) else [len(vocabulary) - 1]
    return 1 + max(numbers + [one.get("id", 0) for one in description.get("added_tokens") or []])


def _config(folder: Path) -> dict[str, Any]:
    if not folder.is_dir():
        raise ModelError(f"{folder}: no such folder; use one with config.json, model.safetensors and tokenizer.json")
    return read_config(folder / "config.json")


def _weights(folder: Path) -> Path:
    found = next((folder / name for name in WEIGHTS if (folder / name).is_file()), None)
    if found is None:
        raise ModelError(f"{folder}: contains no weights; add {' or '.join(WEIGHTS)}")
    return found


def labels_of(config: Mapping[str, Any], path: Path) -> list[str]:
    """Return the class names in ``config.json``."""
    named = config.get("id2label")
    if named is None:
        count = config.get("num_labels", 2)
        named = {str(i): f"LABEL_{i}" for i in range(count if type(count) is int else 0)}
    keys = [str(i) for i in range(len(named))] if isinstance(named, Mapping) else []
    if not keys or set(named) != set(keys):
        raise ModelError(f"{path}: id2label does not name the classes 0, 1, ...; write one name per class")
    return [str(named[key]) for key in keys]


def _length(wanted: int | None, sizes: Sizes) -> int:
    if wanted is None:
        return sizes.longest
    if not 1 <= wanted <= sizes.longest:
        raise ConfigError(
            f"max_length {wanted} is invalid: use at least 1, and at most the model's {sizes.longest} positions"
        )
    return wanted
