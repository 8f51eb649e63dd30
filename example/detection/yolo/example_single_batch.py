"""Find objects in one image with a YOLO network."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.detection.task import Detection

IMAGE = "../../classification/resnet/images/chelsea.jpg"

if __name__ == "__main__":
    cli.single(Detection, ckpt="yolo_stand_in_dyn.onnx", data_path=IMAGE, pixel_values="0..1")
