"""Evaluate the network of point clouds: top-1 accuracy and timing."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.arrays.task import Arrays

if __name__ == "__main__":
    cli.valid(Arrays, ckpt="point_net_dyn.onnx", data_path="data/val.npz", batch_size=64, metric=["top1"])
