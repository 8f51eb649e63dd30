"""Find objects in every picture of a folder with FCOS."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.detection import DETECTION

HERE = Path(__file__).resolve().parent

if __name__ == "__main__":
    ckpt, data = HERE / "fcos_resnet50_fpn_dyn.onnx", HERE.parents[1] / "classification/resnet/images"
    cli.multi(__doc__, DETECTION, ckpt=ckpt, data_path=data, batch_size=2)
