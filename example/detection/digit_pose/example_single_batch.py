"""Find the digits of one scene and their key points."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.keypoints.task import Keypoints

if __name__ == "__main__":
    cli.single(Keypoints, ckpt="digit_pose_dyn.onnx", data_path="data/samples/0300.jpg")
