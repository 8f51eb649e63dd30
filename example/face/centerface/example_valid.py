"""Evaluate CenterFace on labelled images: average precision, precision, recall, false alarms, timing."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.face_detection import FaceDetection

if __name__ == "__main__":
    cli.valid(FaceDetection, ckpt="centerface_dyn.onnx", data_path="data", batch_size=8, input_size=416)
