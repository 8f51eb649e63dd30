"""Evaluate a network for depth or disparity: errors and timing."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.dense_regression.task import DenseRegression

if __name__ == "__main__":
    cli.valid(DenseRegression, ckpt="psmnet_dyn.onnx", data_path="../planes_stereo/data/val", batch_size=16)
