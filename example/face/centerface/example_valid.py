"""Evaluate CenterFace on labelled pictures: average precision, precision, recall, false alarms, timing."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.face_detection import FACE_DETECTION

HERE = Path(__file__).resolve().parent

if __name__ == "__main__":
    ckpt, data = HERE / "centerface_dyn.onnx", HERE / "data"
    cli.valid(__doc__, FACE_DETECTION, ckpt=ckpt, data_path=data, batch_size=8, input_size=416)
