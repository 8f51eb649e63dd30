"""Compare two faces."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.face_verification.task import FaceVerification

PAIR = {"first": "faces/test/s31/01.png", "second": "faces/test/s31/02.png"}

if __name__ == "__main__":
    cli.single(FaceVerification, ckpt={"descriptor": "cosface_orl_dyn.onnx"}, data_path=PAIR)
