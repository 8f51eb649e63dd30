"""Compare all pairs of faces of a folder."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.face_verification.task import FaceVerification

FACES = "faces/test"

if __name__ == "__main__":
    cli.multi(FaceVerification, ckpt={"descriptor": "cosface_orl_dyn.onnx"}, data_path=f"{FACES}/s31", batch_size=16)
