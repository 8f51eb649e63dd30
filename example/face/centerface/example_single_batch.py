"""Find the faces in one image with CenterFace."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.face_detection import FaceDetection

if __name__ == "__main__":
    cli.single(FaceDetection, ckpt="centerface_dyn.onnx", data_path="data/images/scene_00.jpg", input_size=416)
