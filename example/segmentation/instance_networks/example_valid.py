"""Evaluate a network for instance segmentation: mask mAP and timing."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.instance_segmentation.task import InstanceSegmentation

if __name__ == "__main__":
    cli.valid(InstanceSegmentation, ckpt="yolov8n_seg_dyn.onnx", data_path="../digit_instances/data", batch_size=20)
