"""Compare the faces of a folder, each with each."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.face_verification import FACE_VERIFICATION

HERE = Path(__file__).resolve().parent
FACES = HERE / "faces/test"

if __name__ == "__main__":
    ckpt, data = {"descriptor": HERE / "cosface_orl_dyn.onnx"}, FACES / "s31"
    cli.multi(__doc__, FACE_VERIFICATION, ckpt=ckpt, data_path=data, batch_size=16)
