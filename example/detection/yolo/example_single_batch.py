"""Find objects in one picture with a YOLO network."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.detection import DETECTION

HERE = Path(__file__).resolve().parent

if __name__ == "__main__":
    ckpt, data = HERE / "yolo_stand_in_dyn.onnx", HERE.parents[1] / "classification/resnet/images/chelsea.jpg"
    cli.single(__doc__, DETECTION, ckpt=ckpt, data_path=data, batch_size=1, pixel_values="0..1")
