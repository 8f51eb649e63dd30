"""Export torchvision's RetinaNet to ONNX: <arch>.onnx, <arch>_dyn.onnx and <arch>_float16_dyn.onnx."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2]))
from tecoinfer_modelzoo.extra import needed
from utils.pipeline import cli

with needed(__file__):
    from utils.export.networks.torchvision_detectors import export_torchvision

ARCHS = ("retinanet_resnet50_fpn", "retinanet_resnet50_fpn_v2")


def main() -> int:
    """Write the files and print the largest relative error of each."""
    for line in export_torchvision(__doc__, HERE, "retinanet_resnet50_fpn", ARCHS):
        print(line)
    return 0


if __name__ == "__main__":
    cli.run(main)
