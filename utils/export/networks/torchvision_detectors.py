"""torchvision's SSD, RetinaNet and FCOS without postprocessing, which is in utils/postprocess/image/layouts."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from engine import ConfigError
from tecoinfer_modelzoo.text import did_you_mean
from utils.export.networks.random_weights import RANDOM, divide_layers, seeded
from utils.export.networks.torchvision_models import downloaded, import_torchvision
from utils.export.scripts.detector import Detector, add_common, sides, write
from utils.export.weight_files import is_weights_file, load_weights

SHORTER, LONGER = 800, 1333
"""Default side lengths of RetinaNet's and FCOS's images in pixels."""

PUBLISHED = "COCO_V1"

FOUND = -4.0
"""Bias of the class logits of RetinaNet and FCOS with random weights."""


class SsdHead(nn.Module):  # type: ignore[misc]
    """SSD without postprocessing: N x 3 x H x W to N x A x 4 and N x A x (C + 1)."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.backbone, self.head = model.backbone, model.head

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return box offsets and logits."""
        found = self.head(list(self.backbone(images).values()))
        return found["bbox_regression"], found["cls_logits"]


class PyramidHead(nn.Module):  # type: ignore[misc]
    """RetinaNet or FCOS without postprocessing: maps of logits, of boxes, and of centres, per level."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.backbone, self.head = model.backbone, model.head
        self.has_centers = hasattr(model.head.regression_head, "bbox_ctrness")

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the maps."""
        classes, boxes = self.head.classification_head, self.head.regression_head
        logits, offsets, centers = [], [], []
        for level in self.backbone(images).values():
            logits.append(classes.cls_logits(classes.conv(level)))
            seen = boxes.conv(level)
            reach = boxes.bbox_reg(seen)
            offsets.append(nn.functional.relu(reach) if self.has_centers else reach)
            if self.has_centers:
                centers.append(boxes.bbox_ctrness(seen))
        return (*logits, *offsets, *centers)


def _ssd(model: Any, size: tuple[int, int]) -> tuple[nn.Module, list[str], dict[str, Any]]:
    anchors = model.anchor_generator
    with torch.no_grad():
        maps = model.eval().backbone(torch.zeros(1, 3, *size))
    note = {
        "layout": "ssd",
        "size": list(size),
        "grids": [list(one.shape[2:]) for one in maps.values()],
        "aspect_ratios": [list(ratios) for ratios in anchors.aspect_ratios],
        "scales": list(anchors.scales),
        "fit": {"kind": "stretch", "plain": True},
    }
    if anchors.steps is not None:
        note["steps"] = list(anchors.steps)
    return SsdHead(model), ["bbox_regression", "cls_logits"], note


def _pyramid(model: Any, shorter: int, longer: int) -> tuple[nn.Module, list[str], dict[str, Any]]:
    anchors, centred = model.anchor_generator, hasattr(model.head.regression_head, "bbox_ctrness")
    levels = range(len(anchors.sizes))
    kinds = ("logits", "boxes", "centers") if centred else ("logits", "boxes")
    note = {
        "layout": "fcos" if centred else "retinanet",
        "sizes": [list(sizes) for sizes in anchors.sizes],
        "aspect_ratios": list(anchors.aspect_ratios[0]),
        "stride": 8,
        "fit": {"kind": "shorter", "plain": True, "shorter": shorter, "longer": longer, "multiple": 32},
    }
    return PyramidHead(model), [f"{kind}_{level}" for kind in kinds for level in levels], note


def detector(
    arch: str, weights: str, size: Sequence[int] | None = None, classes: int | None = None, backbone: str | None = None
) -> Detector:
    """Return a torchvision detector.

    Args:
        arch: such as ``ssd300_vgg16``. size: height and width of the example input.
        weights: torchvision's name of its weights (``COCO_V1``, downloaded once), a ``.pth`` or ``.safetensors`` file,
            or ``random``.
        classes: number of classes including the background, if other than COCO's.
        backbone: a smaller ResNet (``resnet18``) for RetinaNet or FCOS.

    Raises ConfigError: unknown name, invalid size; ModelError: the download failed, or the file is missing or differs.
    """
    models = import_torchvision().models
    known = [name for name in models.list_models(module=models.detection) if name.startswith(("ssd", "ret", "fcos"))]
    if arch not in known:
        raise ConfigError(f"unknown arch {arch!r};{did_you_mean(arch, known)} use {', '.join(known)}")
    published = next(iter(models.get_model_weights(arch)))
    is_file = is_weights_file(weights)
    if weights not in (RANDOM, published.name) and not is_file:
        raise ConfigError(f"unknown weights {weights!r} for {arch}; use {published.name}, {RANDOM}, or a file's path")
    if classes is not None and (classes < 2 or not (is_file or weights == RANDOM)):
        fix = "use at least 2, including the background, and a file or random weights"
        raise ConfigError(f"--classes {classes}: {fix}")
    make = _maker(models, arch, classes or len(published.meta["categories"]), backbone)
    labels = published.meta["categories"] if classes is None else [str(i) for i in range(classes)]
    own = 300 if arch == "ssd300_vgg16" else 320 if arch.startswith("ssd") else SHORTER
    example = sides(size, (own, own), own if arch == "ssd300_vgg16" else 32)
    made: Any = _seeded(make, example) if weights == RANDOM else make().eval()
    if is_file:
        load_weights(made, weights)
    elif weights != RANDOM:
        downloaded(arch, published, made)
    if arch == "retinanet_resnet50_fpn" and Path(weights).name in (PUBLISHED, Path(published.url).name):
        for norm in (module for module in made.modules() if isinstance(module, nn.BatchNorm2d)):
            norm.eps = 0.0  # as in the training of RetinaNet's first published weights
    return _described(made, arch, Path(weights).name, example, labels, bool(size))


def _described(
    made: Any, arch: str, weights: str, size: tuple[int, int], labels: Sequence[str], sized: bool
) -> Detector:
    """Return a network with its metadata."""
    if arch.startswith("ssd"):
        module, outputs, note = _ssd(made, size)
    else:
        longer = max(1, LONGER * min(size) // SHORTER)
        module, outputs, note = _pyramid(made, min(size), max(longer, max(size)) if sized else LONGER)
    note |= {
        "score_threshold": made.score_thresh,
        "iou_threshold": made.nms_thresh,
        "max_detections": made.detections_per_img,
        "top_k": made.topk_candidates,
    }
    return Detector(
        module=module,
        name=arch,
        source=f"torchvision {arch}",
        weights=weights,
        size=size,
        outputs=outputs,
        labels=labels[1:] if arch.startswith("ssd") else labels,
        note=note,
        mean=made.transform.image_mean,
        std=made.transform.image_std,
        free=not arch.startswith("ssd"),
    )


def _maker(models: Any, arch: str, classes: int, backbone: str | None) -> Callable[[], nn.Module]:
    if backbone is None:
        return lambda: models.get_model(arch, weights=None, weights_backbone=None, num_classes=classes)
    if not arch.endswith("resnet50_fpn"):
        raise ConfigError(f"--backbone {backbone}: only for retinanet_resnet50_fpn and fcos_resnet50_fpn")
    return lambda: _smaller(models, arch, classes, backbone)


def _smaller(models: Any, arch: str, classes: int, backbone: str) -> nn.Module:
    """Return RetinaNet or FCOS on another ResNet."""
    from torchvision.ops.feature_pyramid_network import LastLevelP6P7

    utils = models.detection.backbone_utils
    try:
        body = utils.resnet_fpn_backbone(
            backbone_name=backbone,
            weights=None,
            norm_layer=nn.BatchNorm2d,
            trainable_layers=5,
            returned_layers=[2, 3, 4],
            extra_blocks=LastLevelP6P7(256, 256),
        )
    except (KeyError, ValueError) as error:
        raise ConfigError(f"--backbone {backbone}: torchvision has no such ResNet; use resnet18 or resnet34") from error
    kind = models.detection.FCOS if arch.startswith("fcos") else models.detection.RetinaNet
    made: nn.Module = kind(body, classes)
    return made


def _seeded(make: Callable[[], nn.Module], size: tuple[int, int]) -> nn.Module:
    """Return a detector with random weights (:mod:`utils.export.networks.random_weights`)."""
    made: list[Any] = []

    def raw() -> nn.Module:
        made.append(make())
        return SsdHead(made[0]) if hasattr(made[0].head.classification_head, "module_list") else PyramidHead(made[0])

    whole = seeded(raw, size)
    if isinstance(whole, PyramidHead):
        divide_layers(whole, made[0].backbone.fpn, size)
        divide_layers(whole, made[0].head, size)
    with torch.no_grad():
        for name, value in made[0].head.named_parameters():
            if name.endswith("cls_logits.bias"):
                value.fill_(FOUND)  # so that some boxes pass the thresholds
            elif name.endswith("bbox_reg.bias") and hasattr(made[0].head.regression_head, "bbox_ctrness"):
                value.fill_(1.0)  # a distance of one anchor, so that not all are clipped at 0
    network: nn.Module = made[0].eval()
    return network


def export_torchvision(description: str | None, folder: Path, arch: str, archs: Sequence[str]) -> Iterator[str]:
    """Run an export script with the networks ``archs`` (default ``arch``); yield lines to print."""
    flags = argparse.ArgumentParser(description=description)
    add_common(flags, folder)
    flags.add_argument("--arch", choices=archs, default=arch)
    flags.add_argument(
        "--weights", default=PUBLISHED, help="torchvision's name, a .pth or .safetensors file, or random (COCO_V1)"
    )
    flags.add_argument("--input_size", type=int, nargs="+", metavar="N", help="height (and width) of the example")
    flags.add_argument("--classes", type=int, help="classes of the weights including the background (COCO: 91)")
    if not arch.startswith("ssd"):
        flags.add_argument("--backbone", help="a smaller one: resnet18 or resnet34")
    args = flags.parse_args()
    found = detector(args.arch, args.weights, args.input_size, args.classes, getattr(args, "backbone", None))
    yield from write(found, args)
