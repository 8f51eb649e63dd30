"""DETR and related detectors of transformers, from a folder of ``save_pretrained`` (``config.json``, the weights and
optionally ``preprocessor_config.json``; nothing is downloaded), or small with random weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from engine import ConfigError, ModelError, TargetError
from utils.export.graphs import first_line
from utils.export.networks.bert_encoder import read_config
from utils.export.networks.random_weights import RANDOM, seeded
from utils.export.networks.torchvision_models import import_torchvision
from utils.export.scripts.detector import Detector
from utils.preprocess.image.modes import MEAN, STD

SOFTMAX = ("detr", "table-transformer", "yolos")
"""Kinds of models with a softmax whose last class is background; others use sigmoids."""

TOP_K = {"conditional_detr": 100, "deformable_detr": 100}
"""Number of (query, class) pairs to keep, if not the number of queries."""

MASKED = ("detr", "table-transformer", "conditional_detr", "deformable_detr")
"""Kinds with an input mask of valid pixels."""

ARCHS = ("detr", "rtdetr")


class SetHead(torch.nn.Module):  # type: ignore[misc]
    """Detector without postprocessing: images (and their mask) to logits and relative boxes."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, pixel_values: torch.Tensor, pixel_mask: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return N x Q x C logits and N x Q x 4 centres and sizes."""
        mask = {} if pixel_mask is None else {"pixel_mask": pixel_mask}
        found = self.model(pixel_values=pixel_values, **mask)
        return found.logits, found.pred_boxes


def transformers() -> Any:
    """Import transformers and torchvision (see ``import_torchvision``); raise TargetError if one is not installed."""
    import_torchvision()
    try:
        import transformers as found
    except ModuleNotFoundError as error:
        raise TargetError(f"{error.name} is not installed; run: pip install transformers") from error
    return found


def detector(arch: str, weights: str, size: tuple[int, int] | None = None) -> Detector:
    """Return a detector.

    Args:
        arch: for random weights, one of :data:`ARCHS`. weights: a folder of ``save_pretrained``, or ``random``.
        size: height and width of the example; ``None`` for those of the weights.

    Raises ConfigError: the folder is missing or has another kind of model; ModelError: it is damaged; TargetError:
    transformers is not installed.
    """
    model = _random(arch, size) if weights == RANDOM else pretrained(weights, "AutoModelForObjectDetection")
    found = {} if weights == RANDOM else read_json(Path(weights, "preprocessor_config.json"))
    config = model.config
    kind = config.model_type
    masked = kind in MASKED
    note: dict[str, Any] = {"layout": "detr" if kind in SOFTMAX else "rtdetr", "max_detections": config.num_queries}
    if kind in TOP_K:
        note["top_k"] = TOP_K[kind]
    note["fit"], own = _fit(found.get("size"), masked, size)
    if found.get("do_normalize", masked):
        mean, std = found.get("image_mean", MEAN), found.get("image_std", STD)
    else:
        mean, std = (0.0,) * 3, (1.0,) * 3
    names = config.id2label
    example = size or own
    mask = {"pixel_mask": torch.ones(1, *example, dtype=torch.int64)} if masked else {}
    return Detector(
        module=SetHead(model.eval()),
        name=arch if weights == RANDOM else Path(weights).resolve().name,
        source=f"transformers {kind}",
        weights=Path(weights).name,
        size=example,
        image="pixel_values",
        outputs=["logits", "pred_boxes"],
        labels=[str(names[number]) for number in range(len(names))],
        note=note,
        mean=mean,
        std=std,
        free=masked,
        inputs=mask,
        axes={"pixel_mask": {0: "batch", 1: "height", 2: "width"}} if masked else {},
    )


def _fit(found: Any, masked: bool, given: tuple[int, int] | None) -> tuple[dict[str, Any], tuple[int, int]]:
    """Return the fit of images into the input, and the size of an example."""
    if isinstance(found, Mapping) and "height" in found and "width" in found:
        return {"kind": "stretch"}, (int(found["height"]), int(found["width"]))
    if not masked and not (isinstance(found, Mapping) and "shortest_edge" in found):
        return {"kind": "stretch"}, (640, 640)
    shorter, longer = 800, 1333
    if isinstance(found, Mapping):
        shorter, longer = int(found.get("shortest_edge", 800)), int(found.get("longest_edge") or 1333)
    if given is not None:
        shorter, longer = min(given), max(*given, longer * min(given) // shorter)
    fit = {"kind": "shorter", "shorter": shorter, "longer": longer, "multiple": 1, "rounding": "transformers"}
    return fit, (shorter, shorter)


def read_json(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file, empty if there is no file; raise ModelError for other content."""
    return read_config(path) if path.is_file() else {}


def pretrained(folder: str, loader: str) -> Any:
    """Load a model from a folder, offline; raise ModelError if that fails.

    Raises ConfigError if the folder has no ``config.json``, or another kind of model.
    """
    if not Path(folder, "config.json").is_file():
        fix = "pass a folder of save_pretrained, or random"
        raise ConfigError(f"--weights {folder}: not a folder with a config.json; {fix}")
    loaders = transformers()
    try:
        return getattr(loaders, loader).from_pretrained(folder, local_files_only=True)
    except ValueError as error:  # unsupported model_type
        raise ConfigError(f"--weights {folder}: {first_line(error)}") from error
    except Exception as error:  # its readers raise any exception for damaged files
        raise ModelError(f"--weights {folder}: cannot be loaded ({first_line(error)}); get the files again") from error


def plain_attention(model: Any) -> Any:
    """Return a model whose attention is computed by plain operators: the fused one branches on values of its masks,
    which exporter ``torchscript`` would take as constants."""
    model.set_attn_implementation("eager")
    return model


def _random(arch: str, size: tuple[int, int] | None) -> Any:
    """Return a small network with random weights."""
    found = transformers()
    labels = {"id2label": {0: "cat", 1: "cup", 2: "spoon"}, "label2id": {"cat": 0, "cup": 1, "spoon": 2}}
    if arch == "detr":
        body = found.ResNetConfig(
            embedding_size=16, hidden_sizes=[16, 24], depths=[1, 1], layer_type="basic", out_features=["stage2"]
        )
        config = found.DetrConfig(
            backbone_config=body, d_model=32, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
            decoder_attention_heads=2, encoder_ffn_dim=32, decoder_ffn_dim=32, num_queries=20, use_timm_backbone=False,
            use_pretrained_backbone=False, backbone=None, **labels,
        )  # fmt: skip
        make = found.DetrForObjectDetection
    else:
        body = found.RTDetrResNetConfig(
            embedding_size=16, hidden_sizes=[16, 16, 24, 32], depths=[1, 1, 1, 1], layer_type="basic",
            out_features=["stage2", "stage3", "stage4"],
        )  # fmt: skip
        config = found.RTDetrConfig(
            backbone_config=body, encoder_hidden_dim=32, encoder_in_channels=[16, 24, 32], feat_strides=[8, 16, 32],
            encoder_layers=1, encoder_ffn_dim=32, encoder_attention_heads=2, d_model=32, num_queries=20,
            decoder_in_channels=[32, 32, 32], decoder_ffn_dim=32, decoder_layers=1, decoder_attention_heads=2,
            anchor_image_size=None, **labels,
        )  # fmt: skip
        make = found.RTDetrForObjectDetection
    made: list[Any] = []

    def raw() -> SetHead:
        made.append(make(config))
        return SetHead(made[0])

    seeded(raw, size)
    return made[0]
