"""Evaluate a YOLO network on pictures with boxes: mAP and timing."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.detection import DETECTION

HERE = Path(__file__).resolve().parent

if __name__ == "__main__":
    ckpt, data = HERE / "yolo_stand_in_dyn.onnx", HERE.parents[1] / "classification/resnet/images"
    cli.valid(__doc__, DETECTION, ckpt=ckpt, data_path=data, batch_size=16, pixel_values="0..1")
