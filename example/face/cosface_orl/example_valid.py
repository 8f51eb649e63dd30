"""Evaluate the descriptor on the faces of 10 people that are not in its training."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.face_verification.task import FaceVerification

FACES = "faces/test"

if __name__ == "__main__":
    cli.valid(FaceVerification, ckpt={"descriptor": "cosface_orl_dyn.onnx"}, data_path=FACES, batch_size=64)
