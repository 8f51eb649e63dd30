"""Historical interface of detectors' postprocessing and metric: YOLOv9's, without a file of class names."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from utils.postprocess.pytorch import yolov9m
from utils.postprocess.pytorch.yolov9m import Metrics, get_stats

__all__ = ["get_metrics", "get_stats", "postprocess"]


def postprocess(
    images: Any,
    preds: Any,
    targets: Any = None,
    source_image: Any = None,
    conf_thres: float = 0.001,
    iou_thres: float = 0.7,
    max_det: int = 300,
    device: Any = "cpu",
) -> tuple[Any, Any]:
    """Return what :func:`utils.postprocess.pytorch.yolov9m.postprocess` does, with COCO's names for 80 classes."""
    return yolov9m.postprocess(images, preds, None, targets, source_image, conf_thres, iou_thres, max_det, device)


def get_metrics(stats: Iterable[Any]) -> Metrics:
    """Return :func:`utils.postprocess.pytorch.yolov9m.get_metrics`' result; ``nt`` ends at the last class found."""
    return yolov9m.get_metrics(stats, None)
