"""Evaluate a network for key points: OKS-AP and timing."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.keypoints.task import Keypoints

if __name__ == "__main__":
    cli.valid(Keypoints, ckpt="yolov8n_pose_dyn.onnx", data_path="../digit_pose/data", batch_size=20)
