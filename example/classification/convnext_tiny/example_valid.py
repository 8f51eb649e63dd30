"""Evaluate a ConvNeXt on labelled images: top-k accuracy and timing."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.classification.task import Classification

if __name__ == "__main__":
    cli.valid(Classification, ckpt="convnext_tiny_dyn.onnx", data_path="../resnet/images/val.txt", batch_size=64)
