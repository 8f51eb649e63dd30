"""Segment every image of a folder with DeepLabV3."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.segmentation.task import Segmentation

CKPT = "deeplabv3_mobilenet_v3_large_dyn.onnx"
IMAGES = "../../classification/resnet/images"

if __name__ == "__main__":
    cli.multi(Segmentation, ckpt=CKPT, data_path=IMAGES, batch_size=4, input_size=520)
