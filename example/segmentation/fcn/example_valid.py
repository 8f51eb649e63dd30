"""Evaluate FCN on images with masks: mean IoU and timing."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.segmentation.task import Segmentation

if __name__ == "__main__":
    cli.valid(Segmentation, ckpt="fcn_resnet50_dyn.onnx", data_path="data/VOCdevkit", batch_size=8, input_size=520)
