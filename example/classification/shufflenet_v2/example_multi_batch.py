"""Classify every image of a folder with a ShuffleNetV2."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.classification.task import Classification

if __name__ == "__main__":
    cli.multi(Classification, ckpt="shufflenet_v2_x1_0_dyn.onnx", data_path="../resnet/images", batch_size=16)
