"""Evaluate the digit reader on held-out lines: sequence accuracy and timing."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.text_recognition.task import TextRecognition

if __name__ == "__main__":
    # the card has a plan for each of these widths; a batch takes the smallest that holds its lines
    widths = [96, 160, 256, 512]
    cli.valid(TextRecognition, ckpt="digit_crnn_dyn.onnx", data_path="data/val", batch_size=32, widths=widths)
