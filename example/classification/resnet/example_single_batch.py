"""Classify one image with a ResNet."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.classification.task import Classification

if __name__ == "__main__":
    cli.single(Classification, ckpt="resnet50_dyn.onnx", data_path="images/chelsea.jpg")
