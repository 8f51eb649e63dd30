"""Find the digits in a folder of scenes, or in one scene many times over."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.detection.task import Detection

if __name__ == "__main__":
    cli.multi(Detection, ckpt="digit_detector_dyn.onnx", data_path="data/samples", batch_size=16)
