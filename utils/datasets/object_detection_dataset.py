"""Data loader of detectors, kept for existing scripts: that of :mod:`utils.datasets.yolov9m_dataset`."""

from __future__ import annotations

from utils.datasets.yolov9m_dataset import create_dataloader

__all__ = ["create_dataloader"]
