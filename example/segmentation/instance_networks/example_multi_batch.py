"""Find the objects and their masks in every image of a folder."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.instance_segmentation.task import InstanceSegmentation

DATA = "../digit_instances/data/samples"

if __name__ == "__main__":
    cli.multi(InstanceSegmentation, ckpt="yolov8n_seg_dyn.onnx", data_path=DATA, batch_size=16)
