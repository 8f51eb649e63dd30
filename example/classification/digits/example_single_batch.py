"""Classify one image with the digits ResNet."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.classification.task import Classification

if __name__ == "__main__":
    cli.single(Classification, ckpt="digits_dyn.onnx", data_path="data/val/7/0081.png", input_size=32)
