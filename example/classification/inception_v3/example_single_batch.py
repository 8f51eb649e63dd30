"""Read one picture with Inception v3."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.classification import CLASSIFICATION

HERE = Path(__file__).resolve().parent

if __name__ == "__main__":
    ckpt, data = HERE / "inception_v3_dyn.onnx", HERE.parent / "resnet/images/chelsea.jpg"
    cli.single(__doc__, CLASSIFICATION, ckpt=ckpt, data_path=data, batch_size=1, input_size=299)
