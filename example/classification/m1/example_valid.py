"""Evaluate m1 on labelled pictures: top-k accuracy and timing."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.classification import CLASSIFICATION

HERE = Path(__file__).resolve().parent

if __name__ == "__main__":
    ckpt, data = HERE / "m1_dyn.onnx", HERE / "images/val.txt"
    cli.valid(__doc__, CLASSIFICATION, ckpt=ckpt, data_path=data, batch_size=64, input_size=32)
