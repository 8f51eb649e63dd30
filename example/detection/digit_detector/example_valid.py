"""Evaluate the digit detector on the held-out scenes: mAP and timing."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.detection.task import Detection

if __name__ == "__main__":
    cli.valid(Detection, ckpt="digit_detector_dyn.onnx", data_path="data", batch_size=48)
