"""Find the digits of one scene and their masks."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.instance_segmentation.task import InstanceSegmentation

if __name__ == "__main__":
    cli.single(InstanceSegmentation, ckpt="digit_instances_dyn.onnx", data_path="data/samples/0300.jpg")
