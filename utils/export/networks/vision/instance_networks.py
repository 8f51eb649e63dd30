"""Networks for instance segmentation: YOLOv8 with prototypes of masks."""

from __future__ import annotations

from utils.export.networks.vision.architecture import UNIT, Architecture
from utils.export.networks.vision.yolov8 import DEPTHS_AND_WIDTHS, STRIDES, YoloSegment


def _yolo(name: str) -> Architecture:
    return Architecture(
        build=lambda asked: YoloSegment(name, len(asked.categories.labels), asked.size),
        source="YOLOv8 seg of Ultralytics",
        size=(640, 640), multiple=STRIDES[-1], scale=UNIT, highest=1.0,
        inputs=("images",), outputs=("output0", "output1"),
        notes=lambda asked: {"detection": {"layout": "yolo_seg", "iou_threshold": 0.7}},
    )  # fmt: skip


ARCHS: dict[str, Architecture] = {f"yolov8{name}_seg": _yolo(name) for name in DEPTHS_AND_WIDTHS}
"""Networks by name."""
