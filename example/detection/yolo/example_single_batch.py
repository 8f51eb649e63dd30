"""Find objects in one picture with a YOLO network."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.detection.task import Detection

if __name__ == "__main__":
    cli.single(
        Detection,
        ckpt="yolo_stand_in_dyn.onnx",
        data_path="../../classification/resnet/images/chelsea.jpg",
        pixel_values="0..1",
    )
