"""Classify the first cloud of a file."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.arrays.task import Arrays

if __name__ == "__main__":
    cli.single(Arrays, ckpt="point_net_dyn.onnx", data_path="data/val.npz", batch_size=1)
