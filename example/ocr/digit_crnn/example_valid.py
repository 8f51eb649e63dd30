"""Evaluate the digit reader on held-out lines: sequence accuracy and timing."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.text_recognition import TEXT_RECOGNITION

HERE = Path(__file__).resolve().parent

if __name__ == "__main__":
    ckpt, data = HERE / "digit_crnn_dyn.onnx", HERE / "data/val"
    # the card has a plan for each of these widths; a batch takes the smallest that holds its lines
    widths = [96, 160, 256, 512]
    cli.valid(__doc__, TEXT_RECOGNITION, ckpt=ckpt, data_path=data, batch_size=32, widths=widths)
