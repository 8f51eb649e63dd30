"""Find objects in every image of a folder with FCOS."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.detection.task import Detection

if __name__ == "__main__":
    cli.multi(
        Detection, ckpt="fcos_resnet50_fpn_dyn.onnx", data_path="../../classification/resnet/images", batch_size=2
    )
