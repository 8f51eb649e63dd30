"""Evaluate LR-ASPP on pictures with masks: mean IoU and timing."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.segmentation import SEGMENTATION

HERE = Path(__file__).resolve().parent

if __name__ == "__main__":
    ckpt, data = HERE / "lraspp_mobilenet_v3_large_dyn.onnx", HERE / "data/VOCdevkit"
    cli.valid(__doc__, SEGMENTATION, ckpt=ckpt, data_path=data, batch_size=8, input_size=520)
