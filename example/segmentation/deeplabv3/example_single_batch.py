"""Segment one image with DeepLabV3."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.segmentation.task import Segmentation

IMAGE = "../../classification/resnet/images/chelsea.jpg"

if __name__ == "__main__":
    cli.single(Segmentation, ckpt="deeplabv3_mobilenet_v3_large_dyn.onnx", data_path=IMAGE, input_size=520)
