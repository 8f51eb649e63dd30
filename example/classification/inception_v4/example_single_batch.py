"""Classify one image with Inception v4."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.classification.task import Classification

if __name__ == "__main__":
    cli.single(Classification, ckpt="inception_v4_dyn.onnx", data_path="../resnet/images/chelsea.jpg", input_size=299)
