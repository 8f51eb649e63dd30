"""CLIP and SigLIP of transformers as two ONNX files, from a folder of ``save_pretrained``, or with random weights.

Radford et al., "Learning Transferable Visual Models From Natural Language Supervision" (2021); Zhai et al., "Sigmoid
Loss for Language Image Pre-Training" (2023). The folder has ``config.json``, the weights, ``tokenizer.json`` and
optionally ``preprocessor_config.json``; nothing is downloaded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from engine import ConfigError, ModelError
from utils.export.forms import FORMS
from utils.export.image_processors import FILTERS, HALF
from utils.export.networks.owl_detectors import CLIP_MEAN, CLIP_STD
from utils.export.networks.random_weights import RANDOM, seeded
from utils.export.networks.small_tokenizers import small_tokenizer
from utils.export.networks.text_models import read_tokenizer, tokens_of
from utils.export.networks.transformers_detectors import plain_attention, pretrained, read_json, transformers
from utils.export.onnx_files import ExportResult
from utils.export.torch_export import export_onnx

CLIP, SIGLIP = KINDS = ("clip", "siglip")
"""Supported values of ``model_type`` in ``config.json``."""

NOTES: Mapping[str, Mapping[str, Any]] = {
    CLIP: {"template": ["a photo of a {}."]},
    SIGLIP: {"template": ["This is a photo of {}."], "scores": "sigmoid"},
}
"""Metadata ``image_text`` by kind, as in the papers."""

RANDOM_SIDE, RANDOM_TOKENS = 48, 16
"""Side of the images in pixels, and tokens of a text, of the small networks."""


class ImageEncoder(torch.nn.Module):  # type: ignore[misc]
    """Images to vectors, not yet of length 1."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model, self.projection = model.vision_model, getattr(model, "visual_projection", torch.nn.Identity())

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        """Return N x D of N x 3 x H x W."""
        found: torch.Tensor = self.projection(self.model(pixel_values=pixel_values).pooler_output)
        return found


class TextEncoder(torch.nn.Module):  # type: ignore[misc]
    """Tokens to vectors, not yet of length 1.

    There is no mask: CLIP's vector is that of the end token, which padding behind it does not affect, and SigLIP was
    trained with padding up to its length.
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model, self.projection = model.text_model, getattr(model, "text_projection", torch.nn.Identity())

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        """Return N x D of N x T int64."""
        found: torch.Tensor = self.projection(self.model(input_ids=input_ids).pooler_output)
        return found


@dataclass(frozen=True)
class ImageTextPair:
    """A pair of encoders for :func:`export_pair`.

    Attributes:
        image, text: the networks. name: start of the file names. source, weights: provenance.
        preprocess: metadata of the images. length: tokens of a text. vocabulary: number of tokens.
        tokenizer: content of ``tokenizer.json``. note: metadata ``image_text``.
    """

    image: torch.nn.Module
    text: torch.nn.Module
    name: str
    source: str
    weights: str
    preprocess: Mapping[str, Any]
    length: int
    vocabulary: int
    tokenizer: Mapping[str, Any]
    note: Mapping[str, Any]


def image_text_pair(
    weights: str,
    arch: str = CLIP,
    *,
    tokenizer: str | Path | None = None,
    texts: Sequence[str] = (),
    note: Mapping[str, Any] | None = None,
) -> ImageTextPair:
    """Return a pair of encoders.

    Args:
        weights: a folder, or ``random``. arch: for random weights, one of :data:`KINDS`.
        tokenizer: ``tokenizer.json``; ``None``: that in the folder. texts: whose words a random network knows.
        note: ``template`` and ``case``, if they are not the usual ones.

    Raises ConfigError: the folder is missing or has another kind of model; ModelError: it, or the tokenizer, is
    damaged, missing or larger than the model's vocabulary; TargetError: transformers is not installed.
    """
    description: Mapping[str, Any]
    found: Mapping[str, Any] = {}
    if weights == RANDOM:
        description = small_tokenizer("bert", texts) if tokenizer is None else read_tokenizer(Path(tokenizer), None)
        model = _random(arch, tokens_of(description, "the tokenizer"))
    else:
        model, description = _of_folder(weights, tokenizer)
        found = read_json(Path(weights, "preprocessor_config.json"))
    config = plain_attention(model).config
    own = {"logit_scale": float(model.logit_scale.detach().exp())}
    if config.model_type == SIGLIP:
        own["logit_bias"] = float(model.logit_bias.detach())
        description = _padded(description, config.text_config)
    return ImageTextPair(
        ImageEncoder(model).eval(),
        TextEncoder(model).eval(),
        arch if weights == RANDOM else Path(weights).resolve().name,
        f"transformers {config.model_type}",
        Path(weights).name,
        preprocess_of(found, config.vision_config.image_size, config.model_type, weights),
        config.text_config.max_position_embeddings,
        config.text_config.vocab_size,
        description,
        {**NOTES[config.model_type], **own, **(note or {})},
    )


def _of_folder(weights: str, tokenizer: str | Path | None) -> tuple[Any, dict[str, Any]]:
    """Return a model and its tokenizer."""
    model = pretrained(weights, "AutoModel")
    if model.config.model_type not in KINDS:
        raise ConfigError(f"--weights {weights}: model_type {model.config.model_type}; use {' or '.join(KINDS)}")
    file = Path(tokenizer) if tokenizer else Path(weights, "tokenizer.json")
    description = read_tokenizer(file, None)
    tokens, most = tokens_of(description, str(file)), model.config.text_config.vocab_size
    if tokens > most:
        raise ModelError(f"{file}: has {tokens} tokens, the model has {most}; use the model's tokenizer")
    return model, description


def preprocess_of(found: Mapping[str, Any], side: int, kind: str, origin: str) -> dict[str, Any]:
    """Return the metadata ``preprocess`` of a ``preprocessor_config.json``.

    Args:
        found: its content, which may lack keys. side: of the network's images in pixels. kind: one of :data:`KINDS`.
        origin: for errors. Raises ModelError if it is of another size, or unsupported.
    """
    size = found.get("size", {"height": side, "width": side} if kind == SIGLIP else side)
    size = size if isinstance(size, Mapping) else {"shortest_edge": size}
    crop = found.get("crop_size", side)
    inner = _sides(crop if isinstance(crop, Mapping) else {"height": crop, "width": crop})
    resize: Any = size.get("shortest_edge")
    if resize is None:
        resize = inner = _sides(size)
    if inner != [side, side] or not (isinstance(resize, list) or (type(resize) is int and resize >= side)):
        raise ModelError(
            f"{origin}: preprocessor_config.json gives images of size {found.get('size')!r}, crop "
            f"{found.get('crop_size')!r}; the network takes {side} x {side}; correct the file"
        )
    number = found.get("resample", 3)
    if number not in FILTERS:
        raise ModelError(f"{origin}: preprocessor_config.json: resample {number!r} must be 0 to 5; correct the file")
    usual = (CLIP_MEAN, CLIP_STD) if kind == CLIP else (HALF, HALF)
    mean, std = (list(found.get(key, one)) for key, one in zip(("image_mean", "image_std"), usual, strict=True))
    shapes = {"resize_shape": resize, "crop_shape": inner}
    return {**shapes, "mean": mean, "std": std, "interpolation": FILTERS[number]}


def _sides(size: Mapping[str, Any]) -> list[Any]:
    return [size.get("height"), size.get("width")]


def export_pair(
    pair: ImageTextPair,
    stem: str | Path,
    *,
    batch: int = 1,
    forms: Sequence[str] = FORMS,
    exporter: str | None = None,
) -> list[ExportResult]:
    """Write ``<stem>_image*.onnx`` and ``<stem>_text*.onnx``; only the batch is dynamic.

    ``batch``: of the static files; other arguments and errors: :func:`~utils.export.torch_export.export_onnx`.
    """
    if batch < 1:
        raise ConfigError(f"--batch_size {batch} must be at least 1")
    chance = torch.Generator().manual_seed(0)
    ids = torch.randint(0, pair.vocabulary, (batch, pair.length), generator=chance)
    images = torch.randn(batch, 3, *pair.preprocess["crop_shape"], generator=chance)
    how: dict[str, Any] = {"provenance": {"source": pair.source, "weights": pair.weights}, "forms": forms}
    text = {"tokenizer": pair.tokenizer, "max_length": pair.length, "vocabulary_size": pair.vocabulary}
    return [
        *export_onnx(
            pair.image,
            images,
            f"{stem}_image",
            input_names=["pixel_values"],
            output_names=["image_embeds"],
            preprocess=pair.preprocess,
            notes={"image_text": dict(pair.note)},
            exporter=exporter,
            **how,
        ),
        *export_onnx(
            pair.text,
            ids,
            f"{stem}_text",
            input_names=["input_ids"],
            output_names=["text_embeds"],
            notes=text,
            exporter=exporter,
            **how,
        ),
    ]


def _padded(description: Mapping[str, Any], config: Any) -> dict[str, Any]:
    """Return a tokenizer that pads as in SigLIP's training: with its padding token, which some files do not name."""
    pad = config.pad_token_id
    inner = description["model"]["vocab"]
    named = (key for key, number in inner.items() if number == pad) if isinstance(inner, Mapping) else ()
    rows = {place: row[0] for place, row in enumerate(inner)} if isinstance(inner, list) else {}
    token = next(iter(named), rows.get(pad, "<pad>"))
    length = {"Fixed": config.max_position_embeddings}
    return {
        **description,
        "padding": {
            "strategy": length, "direction": "Right", "pad_to_multiple_of": None, "pad_id": pad, "pad_type_id": 0,
            "pad_token": token,
        },
    }  # fmt: skip


def _random(arch: str, vocabulary: int) -> Any:
    """Return a small network with random weights, with the special tokens of a small BERT tokenizer."""
    found = transformers()
    small = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2}
    special = {"bos_token_id": 2, "eos_token_id": 3, "pad_token_id": 0}
    name = {CLIP: "CLIP", SIGLIP: "Siglip"}[arch]
    text = {**small, "vocab_size": vocabulary, "max_position_embeddings": RANDOM_TOKENS, **special}
    vision = {**small, "image_size": RANDOM_SIDE, "patch_size": 16}
    more = {"projection_dim": 32} if arch == CLIP else {}
    config = getattr(found, f"{name}Config")(text_config=text, vision_config=vision, **more)
    made: list[Any] = []

    def raw() -> ImageEncoder:
        made.append(getattr(found, f"{name}Model")(config))
        return ImageEncoder(made[0])

    seeded(raw, (RANDOM_SIDE, RANDOM_SIDE))
    (model,) = made
    with torch.no_grad():  # with the initial weights all texts, and all images, are nearly equal
        model.text_model.embeddings.token_embedding.weight.mul_(50)
        model.vision_model.embeddings.patch_embedding.weight.mul_(10)
    return model
