"""Historical interface of detectors' preprocessing: that of :mod:`utils.preprocess.pytorch.yolov9m`."""

from __future__ import annotations

from utils.preprocess.pytorch.yolov9m import preprocess

__all__ = ["preprocess"]
