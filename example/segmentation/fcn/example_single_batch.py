"""Segment one image with FCN."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.segmentation.task import Segmentation

IMAGES = "../../classification/resnet/images"

if __name__ == "__main__":
    cli.single(Segmentation, ckpt="fcn_resnet50_dyn.onnx", data_path=f"{IMAGES}/chelsea.jpg", input_size=520)
