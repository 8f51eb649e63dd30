"""Find the objects of one image and their key points."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.keypoints.task import Keypoints

if __name__ == "__main__":
    cli.single(Keypoints, ckpt="yolov8n_pose_dyn.onnx", data_path="../digit_pose/data/samples/0300.jpg", batch_size=1)
