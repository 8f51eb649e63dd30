"""The historical face of detectors' data: that of :mod:`utils.datasets.yolov9m_dataset`."""

from __future__ import annotations

from utils.datasets.yolov9m_dataset import create_dataloader

__all__ = ["create_dataloader"]
