"""Find the faces in every image of a folder with CenterFace."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.face_detection import FaceDetection

if __name__ == "__main__":
    cli.multi(FaceDetection, ckpt="centerface_dyn.onnx", data_path="data/images", batch_size=8, input_size=416)
