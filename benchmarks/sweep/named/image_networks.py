"""Networks of images by name, as the zoo exports them: key points, instances, depth, restoration.

PSMNet is left out, because its smallest input is 256 x 256.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec

from torch import nn

from sweep.row import Row, images
from utils.export.networks.vision import depth_networks, instance_networks, pose_networks, restoration_networks
from utils.export.networks.vision.architecture import Architecture, Asked
from utils.export.networks.vision.categories import OBJECTS, PERSONS, Categories

SIDE = 64
TIMM = ("hrnet", "midas small")
"""Rows that are left out where timm is not installed."""


def _named(
    archs: Mapping[str, Architecture], arch: str, side: int = SIDE, categories: Categories = PERSONS
) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        made: nn.Module = archs[arch].exported(archs[arch].build(Asked((side, side), categories)))
        return made

    return build


_POSES, _MASKS, _DEPTH, _RESTORED = (
    module.ARCHS for module in (pose_networks, instance_networks, depth_networks, restoration_networks)
)

ALL = (
    Row("simple baseline", _named(_POSES, "simple_baseline_resnet18"), images(), outputs=("heatmaps",)),
    Row("hrnet", _named(_POSES, "hrnet_w32"), images(), outputs=("heatmaps",)),
    Row("rtmpose", _named(_POSES, "rtmpose_t"), images(), outputs=("columns", "rows")),
    Row("yolov8 pose", _named(_POSES, "yolov8n_pose"), images()),
    Row("yolov8 seg", _named(_MASKS, "yolov8n_seg", categories=OBJECTS), images(), outputs=("rows", "prototypes")),
    Row("midas small", _named(_DEPTH, "midas_v21_small"), images()),
    Row("depth anything", _named(_DEPTH, "depth_anything_v2_small", 56), images(56)),
    Row("edsr", _named(_RESTORED, "edsr_baseline_x2", 16), images(16)),
    Row("swin2sr", _named(_RESTORED, "swin2sr_tiny_x2", 16), images(16)),
)

ROWS = ALL if find_spec("timm") else tuple(row for row in ALL if row.name not in TIMM)
