"""OWL-ViT and OWLv2 of transformers, from a folder of ``save_pretrained``, or small with random weights; the queries
are common to all images, so the exported model takes them without a batch axis.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from engine import ConfigError, ModelError
from utils.export.networks.random_weights import RANDOM, seeded
from utils.export.networks.transformers_detectors import pretrained, read_json, transformers
from utils.export.scripts.detector import Detector

CLIP_MEAN, CLIP_STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
"""Normalization of CLIP's images (Radford et al., 2021)."""

KINDS = {"owlvit": ("stretch", "bicubic"), "owlv2": ("square", "bilinear")}
"""Fit and interpolation of images by the kind of model."""

NOTHING = -1e4
"""Logit of an empty query (a row of 0); in the range of float16."""


class OwlHead(torch.nn.Module):  # type: ignore[misc]
    """Images and queries to logits per query and relative boxes."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, pixel_values: torch.Tensor, input_ids: torch.Tensor, attention_mask: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return N x P x Q logits and N x P x 4 centres and sizes for N images and Q x L tokens."""
        both = getattr(self.model, self.model.base_model_prefix)
        texts = both.text_model(input_ids=input_ids, attention_mask=attention_mask).pooler_output
        queries = torch.nn.functional.normalize(both.text_projection(texts), dim=-1)
        grid = self.model.image_embedder(pixel_values=pixel_values)[0]
        features = grid.flatten(1, 2)
        logits, _ = self.model.class_predictor(features, queries.unsqueeze(0))
        empty = (input_ids[:, 0] <= 0).to(logits.dtype)
        return logits + empty * NOTHING, self.model.box_predictor(features, grid)


def detector(arch: str, weights: str, tokenizer: str | None = None) -> Detector:
    """Return a detector with its tokenizer (``tokenizer.json``; ``None`` for the one in the folder).

    Args:
        arch: for random weights, one of :data:`KINDS`. weights: a folder of ``save_pretrained``, or ``random``.

    Raises ConfigError: the folder holds another kind of model; ModelError: it, or the tokenizer, is missing or damaged.
    """
    model = _random(arch) if weights == RANDOM else pretrained(weights, "AutoModelForZeroShotObjectDetection")
    kind = model.config.model_type
    if kind not in KINDS:
        raise ConfigError(f"--weights {weights}: model_type {kind}; supported are {', '.join(KINDS)}")
    place = Path(tokenizer) if tokenizer else Path(weights, "tokenizer.json")
    description = _words() if weights == RANDOM and not tokenizer else read_json(place)
    if not description:
        raise ModelError(f"{place}: no such tokenizer; pass --tokenizer tokenizer.json")
    found = {} if weights == RANDOM else read_json(Path(weights, "preprocessor_config.json"))
    side, (fit, interpolation) = model.config.vision_config.image_size, KINDS[kind]
    length = model.config.text_config.max_position_embeddings
    ids = torch.zeros(2, length, dtype=torch.int64)
    ids[:, :3] = torch.tensor([[1, 4, 2], [1, 5, 2]])
    axes = {name: {0: "queries"} for name in ("input_ids", "attention_mask")}
    return Detector(
        module=OwlHead(model.eval()),
        name=arch if weights == RANDOM else Path(weights).resolve().name,
        source=f"transformers {kind}",
        weights=Path(weights).name,
        size=(side, side),
        image="pixel_values",
        outputs=["logits", "pred_boxes"],
        labels=None,
        note={"layout": "owl", "fit": {"kind": fit}},
        mean=found.get("image_mean", CLIP_MEAN),
        std=found.get("image_std", CLIP_STD),
        interpolation=interpolation,
        inputs={"input_ids": ids, "attention_mask": (ids > 0).to(torch.int64)},
        axes=axes,
        notes={"tokenizer": description},
    )


def _random(arch: str) -> Any:
    """Return a small network with random weights."""
    found = transformers()
    small = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2}
    name = "OwlViT" if arch == "owlvit" else "Owlv2"
    ends = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    config = getattr(found, f"{name}Config")(
        text_config={**small, "vocab_size": 40, "max_position_embeddings": 16, **ends},
        vision_config={**small, "image_size": 96, "patch_size": 16},
        projection_dim=32,
    )
    made: list[Any] = []

    def raw() -> OwlHead:
        made.append(getattr(found, f"{name}ForObjectDetection")(config))
        return OwlHead(made[0])

    seeded(raw, (96, 96))
    both = getattr(made[0], made[0].base_model_prefix)
    with torch.no_grad():  # with the initial weights all texts, and all images, are nearly equal
        both.text_model.embeddings.token_embedding.weight.mul_(50)
        both.vision_model.embeddings.patch_embedding.weight.mul_(10)
    return made[0]


def _words() -> dict[str, Any]:
    """Return a tokenizer of a few words, for random weights."""
    import json

    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    words = ["<pad>", "<start>", "<unknown>", "a", "photo", "of", "cat", "cup", "spoon", "dog", "the", "red", "small"]
    made = Tokenizer(
        models.WordLevel({**{word: i for i, word in enumerate(words)}, "<end>": 39}, unk_token="<unknown>")  # noqa: S106
    )
    made.normalizer = normalizers.Lowercase()
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = processors.TemplateProcessing(
        single="<start> $A <end>", special_tokens=[("<start>", 1), ("<end>", 39)]
    )
    found: dict[str, Any] = json.loads(made.to_str())
    return found
