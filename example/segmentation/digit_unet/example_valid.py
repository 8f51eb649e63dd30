"""Evaluate the digit segmenter on held-out scenes: mean IoU and timing."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.segmentation import SEGMENTATION

HERE = Path(__file__).resolve().parent

if __name__ == "__main__":
    ckpt, data = HERE / "digit_unet_dyn.onnx", HERE / "data/val"
    cli.valid(__doc__, SEGMENTATION, ckpt=ckpt, data_path=data, batch_size=16, input_size=160)
