"""Find objects in one image with RetinaNet."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.detection.task import Detection

if __name__ == "__main__":
    cli.single(
        Detection, ckpt="retinanet_resnet50_fpn_dyn.onnx", data_path="../../classification/resnet/images/chelsea.jpg"
    )
