"""Find the digits of every scene of a folder and their key points."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.keypoints.task import Keypoints

if __name__ == "__main__":
    cli.multi(Keypoints, ckpt="digit_pose_dyn.onnx", data_path="data/samples", batch_size=16)
