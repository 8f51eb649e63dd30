"""Evaluate the digit instances on the held-out scenes: mask mAP and timing."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.instance_segmentation.task import InstanceSegmentation

if __name__ == "__main__":
    cli.valid(InstanceSegmentation, ckpt="digit_instances_dyn.onnx", data_path="data", batch_size=20)
