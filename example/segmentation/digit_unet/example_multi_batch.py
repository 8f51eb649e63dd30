"""Find the digits of every scene of a folder, pixel by pixel."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.segmentation.task import Segmentation

if __name__ == "__main__":
    cli.multi(Segmentation, ckpt="digit_unet_dyn.onnx", data_path="data/samples", batch_size=16, input_size=160)
