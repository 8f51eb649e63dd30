"""Networks for key points: heat maps of SimpleBaseline and HRNet, SimCC's vectors of RTMPose, rows of YOLOv8."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import nn

from engine import ConfigError
from utils.export.networks.timm_models import import_timm
from utils.export.networks.torchvision_models import import_torchvision
from utils.export.networks.vision.architecture import UNIT, Architecture, Asked
from utils.export.networks.vision.categories import Categories
from utils.export.networks.vision.rtmpose import RtmPose
from utils.export.networks.vision.yolov8 import DEPTHS_AND_WIDTHS, STRIDES, YoloPose

DECONVOLUTION = 256
"""Channels of SimpleBaseline's transposed convolutions."""


class SimpleBaseline(nn.Module):  # type: ignore[misc]  # torch is not typed here
    """SimpleBaseline (Xiao et al., 2018): N x 3 x H x W to heat maps, N x K x H/4 x W/4.

    A ResNet of torchvision, three transposed convolutions that double the sides, and a layer of one map per point. The
    names of the weights are those of the authors' checkpoints (``pose_resnet_50_256x192.pth.tar``).
    """

    def __init__(self, depth: int, points: int) -> None:
        super().__init__()
        body = import_torchvision().models.get_model(f"resnet{depth}", weights=None)
        for name in ("conv1", "bn1", "relu", "maxpool", "layer1", "layer2", "layer3", "layer4"):
            self.add_module(name, getattr(body, name))
        layers: list[nn.Module] = []
        width = body.fc.in_features
        for _ in range(3):
            layers += [
                nn.ConvTranspose2d(width, DECONVOLUTION, 4, 2, 1, bias=False),
                nn.BatchNorm2d(DECONVOLUTION),
                nn.ReLU(inplace=True),
            ]
            width = DECONVOLUTION
        self.deconv_layers = nn.Sequential(*layers)
        self.final_layer = nn.Conv2d(width, points, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the heat maps."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        for layer in (self.layer1, self.layer2, self.layer3, self.layer4):
            x = layer(x)
        found: torch.Tensor = self.final_layer(self.deconv_layers(x))
        return found


def high_resolution(width: int, points: int) -> nn.Module:
    """Return HRNet for poses (Sun et al., 2019): N x 3 x H x W to heat maps, N x K x H/4 x W/4.

    The body is timm's, without the fusion layers of the coarser outputs; the names of the weights are those of the
    authors' checkpoints (``pose_hrnet_w32_256x192.pth``). ``width``: channels of the finest branch, 32 or 48.
    Raises TargetError if timm is not installed.
    """
    import_timm()
    from timm.models.hrnet import HighResolutionNet, cfg_cls

    class PoseHrNet(HighResolutionNet):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            features: Any = self.forward_features  # timm's is not typed
            found: torch.Tensor = self.final_layer(features(x)[0])
            return found

    made: nn.Module = PoseHrNet(cfg_cls[f"hrnet_w{width}"], head="")
    last = made.stage4[-1]
    last.fuse_layers = last.fuse_layers[:1]  # the finest output only
    made.final_layer = nn.Conv2d(width, points, 1)
    return made


def _count(asked: Asked) -> int:
    """Return the number of points of a network of one object's points; raise ConfigError for several classes."""
    labels = asked.categories.labels
    if len(labels) != 1:
        raise ConfigError(
            f"--annotations has {len(labels)} categories: a network of one object's points takes 1; use a YOLO"
        )
    return len(asked.categories.points)


def _one_object(layout: str, asked: Asked) -> Mapping[str, Any]:
    """Return the metadata of a network of one object's points."""
    settings = {"box_scale": 1.25} | ({"alignment": "corner"} if layout == "heatmaps" else {})
    return {"detection": _points(layout, asked.categories) | settings}


def _points(layout: str, found: Categories) -> dict[str, Any]:
    return {"layout": layout, "point_names": list(found.points), "skeleton": [list(pair) for pair in found.skeleton]}


def _heatmaps(source: str, build: Any) -> Architecture:
    return Architecture(
        build=lambda asked: build(points=_count(asked)),
        source=source,
        size=(256, 192), multiple=32, outputs=("heatmaps",),
        notes=partial(_one_object, "heatmaps"),
    )  # fmt: skip


def _rtmpose(name: str) -> Architecture:
    return Architecture(
        build=lambda asked: RtmPose(name, _count(asked), asked.size),
        source="RTMPose of open-mmlab/mmpose",
        size=(256, 192), multiple=32, outputs=("simcc_x", "simcc_y"),
        notes=partial(_one_object, "simcc"),
    )  # fmt: skip


def _yolo(name: str) -> Architecture:
    return Architecture(
        build=lambda asked: YoloPose(
            name, len(asked.categories.labels), len(asked.categories.points), asked.size
        ),
        source="YOLOv8 pose of Ultralytics",
        size=(640, 640), multiple=STRIDES[-1], scale=UNIT, highest=1.0, inputs=("images",), outputs=("output0",),
        notes=lambda asked: {"detection": _points("yolo_pose", asked.categories) | {"iou_threshold": 0.7}},
    )  # fmt: skip


ARCHS: dict[str, Architecture] = {
    **{
        f"simple_baseline_resnet{depth}": _heatmaps(
            "SimpleBaseline of microsoft/human-pose-estimation.pytorch", partial(SimpleBaseline, depth)
        )
        for depth in (18, 34, 50, 101, 152)
    },
    **{
        f"hrnet_w{width}": _heatmaps(
            "HRNet of leoxiaobin/deep-high-resolution-net.pytorch", partial(high_resolution, width)
        )
        for width in (32, 48)
    },
    **{f"rtmpose_{name}": _rtmpose(name) for name in ("t", "s", "m", "l")},
    **{f"yolov8{name}_pose": _yolo(name) for name in DEPTHS_AND_WIDTHS},
}
"""Networks by name."""
