"""Find which pixel of a picture is what with FCN."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.segmentation import SEGMENTATION

HERE = Path(__file__).resolve().parent
IMAGES = HERE.parents[1] / "classification/resnet/images"

if __name__ == "__main__":
    ckpt, data = HERE / "fcn_resnet50_dyn.onnx", IMAGES / "chelsea.jpg"
    cli.single(__doc__, SEGMENTATION, ckpt=ckpt, data_path=data, batch_size=1, input_size=520)
