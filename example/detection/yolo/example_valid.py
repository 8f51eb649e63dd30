"""Evaluate a YOLO network on images with boxes: mAP and timing."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.detection.task import Detection

IMAGES = "../../classification/resnet/images"

if __name__ == "__main__":
    cli.valid(Detection, ckpt="yolo_stand_in_dyn.onnx", data_path=IMAGES, batch_size=16, pixel_values="0..1")
